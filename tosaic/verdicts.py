"""Tells the pass `place` what the NPU of each target, and each accelerator, says of an op."""

from __future__ import annotations

from functools import partial

from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.acceptance import refusal, suspicion
from tosaic.passes.place.verdicts import VERDICTS
from tosaic.proof import prove_beside
from tosaic.support.mlir import ir
from tosaic.targets import targets


def verdict(op: ir.Operation, accelerator: str) -> str | None:
    """Why `accelerator` does not run `op`: it cannot, or Vela is suspected of an error and executed to make it."""
    if reason := refusal(op, accelerator):
        return reason
    suspected = suspicion(op, accelerator)
    if suspected is None:
        return None
    difference = prove_beside(op, accelerator, lambda other: refusal(other, accelerator) is None)
    return f"{suspected}; Vela else computes it wrongly: {difference}" if difference else None


VERDICTS.update({name: partial(verdict, accelerator=name) for name in ACCELERATORS})
VERDICTS.update({name: VERDICTS[target.accelerator or ""] for name, target in targets().items()})
