"""Schedules by chance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from tosaic.tuner.search.base import STRATEGIES, Search
from tosaic.tuner.space import Schedule


@STRATEGIES.register
class Random(Search):
    """Schedules by chance."""

    name: ClassVar[str] = "random"

    def choose(self, count: int) -> Iterable[Schedule]:
        return self._random(count)
