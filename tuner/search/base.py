"""Which schedules of one task to try next: what every strategy has in common, and the table of them."""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import numpy as np

from tosaic.support.registry import Registry
from tosaic.tuner.space import SCANNED, Schedule, Space

Score = Callable[[Sequence[Schedule]], np.ndarray | None]
"""Predicted worth of schedules, higher is better; None while nothing can be predicted."""

ENUMERABLE = 16_384
DRAWS_FOR_EACH = 16
"""Of an unseen schedule: a space may have many variants of one schedule beside a large one."""


class Search(ABC):
    """The search of one task. It never proposes a schedule that it proposed or observed before.

    A strategy is a subclass in a file of its own, registered in `STRATEGIES`. One that is `guided` asks the cost model;
    the others' `score` knows nothing.

    Args:
        space: the schedules.
        rng: the only source of chance.
        score: the cost model's verdict.
        hints: schedules that are good on similar tasks.
    """

    name: ClassVar[str]
    guided: ClassVar[bool] = False

    def __init__(self, space: Space, rng: random.Random, score: Score, hints: Sequence[Schedule] = ()) -> None:
        self.space, self.rng, self.score, self.hints = space, rng, score, hints
        self.costs: dict[Schedule, float] = {}
        self._seen: dict[Schedule, None] = {}
        self._left: dict[Schedule, None] | None = None
        self._scan = space.scan()

    @property
    def _unseen(self) -> dict[Schedule, None] | None:
        """What is left of a small space, whose legality is looked at when it is first asked for."""
        if self._left is None and self.space.assignments <= ENUMERABLE:
            self._left = dict.fromkeys(schedule for schedule in self.space.schedules() if schedule not in self._seen)
        return self._left

    def observe(self, schedule: Schedule, cost: float) -> None:
        """Learn the cost of a schedule, infinity for a failed trial."""
        self.costs[schedule] = cost
        self._mark([schedule])

    def propose(self, count: int) -> list[Schedule]:
        """The next `count` schedules; fewer only when the space holds no more."""
        chosen = list(self.choose(count))
        self._mark(chosen)
        missing = self._in_order(count - len(chosen))
        self._mark(missing)
        return chosen + missing

    @abstractmethod
    def choose(self, count: int) -> Iterable[Schedule]:
        """Up to `count` different unseen schedules."""

    def _mark(self, schedules: Iterable[Schedule]) -> None:
        for schedule in schedules:
            self._seen[schedule] = None
            if self._left is not None:
                self._left.pop(schedule, None)

    def _in_order(self, count: int) -> list[Schedule]:
        """Up to `count` that no proposal has reached, in the order of the space, which is walked once in all."""
        ahead = itertools.islice(self._scan, SCANNED if count else 0)
        return list(itertools.islice((s for s in ahead if s is not None and s not in self._seen), count))

    def _random(self, count: int, but: Iterable[Schedule] = ()) -> list[Schedule]:
        """Up to `count` unseen schedules by chance, none of `but`."""
        taken = dict.fromkeys(but)
        if self._unseen is not None:
            left = [schedule for schedule in self._unseen if schedule not in taken]
            return self.rng.sample(left, min(count, len(left)))
        found: dict[Schedule, None] = {}
        for _ in range(DRAWS_FOR_EACH * count):
            if len(found) == count:
                break
            schedule = self.space.sample(self.rng)
            if schedule not in self._seen and schedule not in taken:
                found[schedule] = None
        return list(found)


STRATEGIES: Registry[Search] = Registry("search strategy", "tosaic.tuner.search", "tosaic.search_strategies")
"""Every strategy: those of this folder, and those that packages name in the group `tosaic.search_strategies`."""
