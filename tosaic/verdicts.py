"""Tells the pass `place` what the NPU of each target, and each accelerator, says of an op."""

from __future__ import annotations

from functools import partial

from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.acceptance import verdict
from tosaic.passes.place.verdicts import VERDICTS
from tosaic.targets import targets

VERDICTS.update({name: partial(verdict, accelerator=name) for name in ACCELERATORS})
VERDICTS.update({name: VERDICTS[target.accelerator or ""] for name, target in targets().items()})
