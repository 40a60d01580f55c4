"""Descendants of the best measured schedules, picked by the cost model."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from tosaic.tuner.search.base import STRATEGIES, Score, Search
from tosaic.tuner.space import Schedule, Space

RANKED_WHOLE = 1_024
POPULATION = 128
GENERATIONS = 4
ELITE_SHARE = 0.2
CROSSOVER_SHARE = 0.4
RANDOM_SHARE = 0.25


@STRATEGIES.register
class Evolutionary(Search):
    """Descendants of the best measured schedules, picked by the cost model.

    Some are picked by chance against its blind spots, half of them near the best.

    The scheme of Ansor (arXiv:2006.06762, section 5.1). The first proposals are the space's default, what is good on
    similar tasks, and the first schedule of every variant. A small space is ranked as a whole instead of being evolved.
    """

    name: ClassVar[str] = "evolutionary"
    guided: ClassVar[bool] = True

    def __init__(self, space: Space, rng: random.Random, score: Score, hints: Sequence[Schedule] = ()) -> None:
        super().__init__(space, rng, score, hints)
        firsts = [first for variant in space.variants if (first := variant.first()) is not None]
        self._starters = list(dict.fromkeys([*firsts[:1], *hints, *firsts[1:]]))

    def choose(self, count: int) -> Iterable[Schedule]:
        if self._unseen is not None and len(self._unseen) <= count:
            return list(self._unseen)
        starters = [schedule for schedule in self._starters if schedule not in self._seen][:count]
        by_chance = sum(self.rng.random() < RANDOM_SHARE for _ in range(count - len(starters)))
        guided = self._guided(count - len(starters) - by_chance, starters)
        chosen = dict.fromkeys([*starters, *guided])
        nearby = self._nearby((count - len(chosen)) // 2)
        chosen.update(dict.fromkeys(nearby))
        return [*chosen, *self._random(count - len(chosen), but=chosen)]

    def _nearby(self, count: int) -> list[Schedule]:
        """Up to `count` unseen neighbors of the best measured schedule, whatever the model says."""
        found = (self.space.neighbor(self.rng, best) for best in self._elite(1) for _ in range(4 * count))
        new = (schedule for schedule in found if schedule is not None and schedule not in self._seen)
        return list(itertools.islice(dict.fromkeys(new), count))

    def _elite(self, count: int) -> list[Schedule]:
        measured = [schedule for schedule, cost in self.costs.items() if math.isfinite(cost)]
        return sorted(measured, key=lambda schedule: self.costs[schedule])[:count]

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
        elite = self._elite(int(POPULATION * ELITE_SHARE))
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
        return self.space.neighbor(self.rng, mother) or self.space.sample(self.rng)
