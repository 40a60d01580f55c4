"""Every schedule, in the order of the space."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from tosaic.tuner.search.base import STRATEGIES, Search
from tosaic.tuner.space import Schedule


@STRATEGIES.register
class Exhaustive(Search):
    """Every schedule, in the order of the space."""

    name: ClassVar[str] = "exhaustive"

    def choose(self, count: int) -> Iterable[Schedule]:
        return ()
