"""Which schedules of one task to try next."""

from __future__ import annotations

import itertools
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tosaic.tuner.space import Schedule, Space

Score = Callable[[Sequence[Schedule]], np.ndarray | None]
"""Predicted worth of schedules, higher is better; None while nothing can be predicted."""

ENUMERABLE = 16_384
RANKED_WHOLE = 1_024
POPULATION = 128
GENERATIONS = 4
ELITE_SHARE = 0.2
CROSSOVER_SHARE = 0.4
RANDOM_SHARE = 0.1


class Search(ABC):
    """The search of one task. It never proposes a schedule that it proposed or observed before.

    Args:
        space: the schedules.
        rng: the only source of chance.
    """

    def __init__(self, space: Space, rng: random.Random) -> None:
        self.space, self.rng = space, rng
        self.costs: dict[Schedule, float] = {}
        self._seen: set[Schedule] = set()
        self._unseen = dict.fromkeys(space.schedules()) if space.assignments <= ENUMERABLE else None
        self._scan = space.schedules()

    def observe(self, schedule: Schedule, cost: float) -> None:
        """Learn the cost of a schedule, infinity for a failed trial."""
        self.costs[schedule] = cost
        self._mark([schedule])

    def propose(self, count: int) -> list[Schedule]:
        """The next `count` schedules; fewer only when the space holds no more."""
        chosen = list(self._choose(count))
        self._mark(chosen)
        missing = list(itertools.islice(self._in_order(), count - len(chosen)))
        self._mark(missing)
        return chosen + missing

    @abstractmethod
    def _choose(self, count: int) -> Iterable[Schedule]:
        """Up to `count` different unseen schedules."""

    def _mark(self, schedules: Iterable[Schedule]) -> None:
        for schedule in schedules:
            self._seen.add(schedule)
            if self._unseen is not None:
                self._unseen.pop(schedule, None)

    def _in_order(self) -> Iterable[Schedule]:
        """What no proposal has reached, in the order of the space; a large space is walked once in all."""
        return (schedule for schedule in self._scan if schedule not in self._seen)

    def _random(self, count: int, but: Iterable[Schedule] = ()) -> list[Schedule]:
        """Up to `count` unseen schedules by chance, none of `but`."""
        taken = dict.fromkeys(but)
        if self._unseen is not None:
            left = [schedule for schedule in self._unseen if schedule not in taken]
            return self.rng.sample(left, min(count, len(left)))
        found: dict[Schedule, None] = {}
        for _ in range(4 * count):
            if len(found) == count:
                break
            schedule = self.space.sample(self.rng)
            if schedule not in self._seen and schedule not in taken:
                found[schedule] = None
        return list(found)


class Exhaustive(Search):
    """Every schedule, in the order of the space."""

    def _choose(self, count: int) -> Iterable[Schedule]:
        return ()


class Random(Search):
    """Schedules by chance."""

    def _choose(self, count: int) -> Iterable[Schedule]:
        return self._random(count)


class Evolutionary(Search):
    """Descendants of the best measured schedules, picked by the cost model; some by chance against its blind spots.

    The scheme of Ansor (arXiv:2006.06762, section 5.1). The first proposals are the space's default and the first
    schedule of every variant. A small space is ranked as a whole instead of being evolved.

    Args:
        space: the schedules.
        rng: the only source of chance.
        score: the cost model's verdict.
    """

    def __init__(self, space: Space, rng: random.Random, score: Score) -> None:
        super().__init__(space, rng)
        self.score = score
        self._starters = [first for v in space.variants if (first := next(v.schedules(), None)) is not None]

    def _choose(self, count: int) -> Iterable[Schedule]:
        if self._unseen is not None and len(self._unseen) <= count:
            return list(self._unseen)
        starters = [schedule for schedule in self._starters if schedule not in self._seen][:count]
        by_chance = sum(self.rng.random() < RANDOM_SHARE for _ in range(count - len(starters)))
        guided = self._guided(count - len(starters) - by_chance, starters)
        chosen = [*starters, *guided]
        return chosen + self._random(count - len(chosen), but=chosen)

    def _guided(self, count: int, but: Sequence[Schedule]) -> list[Schedule]:
        small = self._unseen is not None and len(self._unseen) <= RANKED_WHOLE
        candidates = self._rank(list(self._unseen)) if small and self._unseen else self._evolve()
        taken = set(but)
        return [schedule for schedule in candidates if schedule not in taken][:count]

    def _rank(self, schedules: list[Schedule]) -> list[Schedule]:
        """Best first by the model; nothing while it knows nothing."""
        scores = self.score(schedules)
        return [] if scores is None else [schedules[i] for i in np.argsort(-scores, kind="stable")]

    def _evolve(self) -> list[Schedule]:
        """The unseen ones among some generations of candidates, best first."""
        measured = [schedule for schedule, cost in self.costs.items() if math.isfinite(cost)]
        elite = sorted(measured, key=lambda schedule: self.costs[schedule])[: int(POPULATION * ELITE_SHARE)]
        population = self._rank([*elite, *self._random(POPULATION - len(elite))])
        candidates = dict.fromkeys(population)
        for _ in range(GENERATIONS if population else 0):
            odds = list(itertools.accumulate(1 / (1 + rank) for rank in range(len(population))))
            children = dict.fromkeys(self._child(population, odds) for _ in range(POPULATION))
            candidates.update(children)
            population = self._rank(list(dict.fromkeys([*elite, *children])))[:POPULATION]
        return self._rank([schedule for schedule in candidates if schedule not in self._seen]) if candidates else []

    def _child(self, population: list[Schedule], odds: list[float]) -> Schedule:
        mother, father = self.rng.choices(population, cum_weights=odds, k=2)
        if mother.variant == father.variant and self.rng.random() < CROSSOVER_SHARE:
            pairs = zip(mother.knobs, father.knobs, strict=True)
            child = Schedule(mother.variant, tuple(self.rng.choice(pair) for pair in pairs))
            if child != mother and child in self.space:
                return child
        return self.space.mutate(self.rng, mother)
