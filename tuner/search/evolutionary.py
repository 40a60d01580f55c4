"""Descendants of the best measured schedules, picked by the cost model."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from tosaic.tuner.search.base import STRATEGIES, Score, Search
from tosaic.tuner.space import Schedule, Space

RANKED_WHOLE = 1_024
POPULATION = 128
FRESH = 24
CHILDREN = 64
GENERATIONS = 3
ELITE = 24
# Predictions nearer than so many doublings of the cost are alike.
ALIKE = 0.002
# Doublings that a schedule counts as slower for each one alike.
CROWDING = 0.02
CROSSOVER_SHARE = 0.4
RANDOM_SHARE = 0.25
# Of the others, those that are mutations, and how many are priced for each.
MUTATED_SHARE = 0.3
MUTATED = 2


@STRATEGIES.register
class Evolutionary(Search):
    """Descendants of the best measured schedules, picked by the cost model.

    The scheme is that of Ansor (arXiv:2006.06762, section 5.1). Its population lives on from proposal to proposal, and
    some schedules drawn at random join it each time. Schedules that the model cannot tell apart take turns with others
    that are nearly as good. Where a space has mutations, which no knobs number, some proposals are the best of several
    mutations of the best measured schedules. Some proposals are picked by chance against the model's blind spots, half
    of them near the best measured ones. The first proposals, from which the population descends too, are the space's
    default, what is good on similar tasks, and the first schedule of every variant. A small space is ranked as a whole
    instead of being evolved.
    """

    name: ClassVar[str] = "evolutionary"
    guided: ClassVar[bool] = True

    def __init__(self, space: Space, rng: random.Random, score: Score, hints: Sequence[Schedule] = ()) -> None:
        super().__init__(space, rng, score, hints)
        firsts = [first for variant in space.variants if (first := variant.first()) is not None]
        self._starters = list(dict.fromkeys([*firsts[:1], *hints, *firsts[1:]]))
        self._population: list[Schedule] = []

    def choose(self, count: int) -> Iterable[Schedule]:
        starters = [schedule for schedule in self._starters if schedule not in self._seen][:count]
        if len(starters) == count:
            return starters
        if self._unseen is not None and len(self._unseen) <= count:
            return [*self._unseen, *self._mutated(count - len(self._unseen))]
        by_chance = sum(self.rng.random() < RANDOM_SHARE for _ in range(count - len(starters)))
        by_model = count - len(starters) - by_chance
        mutated = self._mutated(sum(self.rng.random() < MUTATED_SHARE for _ in range(by_model)))
        guided = self._guided(by_model - len(mutated), starters)
        chosen = dict.fromkeys([*starters, *mutated, *guided])
        nearby = self._nearby((count - len(chosen)) // 2)
        chosen.update(dict.fromkeys(nearby))
        return [*chosen, *self._random(count - len(chosen), but=chosen)]

    def _mutated(self, count: int) -> list[Schedule]:
        """The best of some unseen mutations of the best measured schedules, of the very best most often."""
        elite, mutations = self._elite(ELITE), self.space.mutations
        if mutations is None or not elite:
            return []
        odds = list(itertools.accumulate(1 / (1 + rank) ** 2 for rank in range(len(elite))))
        mothers = self.rng.choices(elite, cum_weights=odds, k=MUTATED * count)
        found = (mutations.neighbor(self.rng, mother) for mother in mothers)
        return self._fittest(s for s in found if s is not None and s not in self._seen)[:count]

    def _nearby(self, count: int) -> list[Schedule]:
        """Up to `count` unseen neighbors of the best measured schedule, whatever the model says."""
        found = (self.space.neighbor(self.rng, best) for best in self._elite(1) for _ in range(4 * count))
        new = (schedule for schedule in found if schedule is not None and schedule not in self._seen)
        return list(itertools.islice(dict.fromkeys(new), count))

    def _elite(self, count: int) -> list[Schedule]:
        measured = [schedule for schedule, cost in self.costs.items() if math.isfinite(cost)]
        return sorted(measured, key=lambda schedule: self.costs[schedule])[:count]

    def _guided(self, count: int, but: Sequence[Schedule]) -> list[Schedule]:
        """The `count` unseen schedules that the model likes best; each that it cannot tell from others counts less for
        every one of these that was tried or is chosen."""
        small = self._unseen is not None and len(self._unseen) <= RANKED_WHOLE
        candidates = list(self._unseen) if small and self._unseen else self._evolved()
        seen = list(dict.fromkeys([*self._seen, *but]))
        scores = self.score([*seen, *candidates])
        if scores is None:
            return []
        kinds = np.round(scores / ALIKE).tolist()
        alike, taken = Counter(kinds[: len(seen)]), set(seen)
        worth: dict[Schedule, float] = {}
        for i in np.argsort(-scores[len(seen) :], kind="stable") + len(seen):
            schedule = candidates[i - len(seen)]
            if schedule not in taken:
                worth[schedule] = float(scores[i]) - CROWDING * alike[kinds[i]]
                alike[kinds[i]] += 1
        return sorted(worth, key=lambda schedule: -worth[schedule])[:count]

    def _evolved(self) -> list[Schedule]:
        """The population after some generations, joined by its newest children."""
        fresh = self._random(FRESH if self._population else POPULATION)
        elite = self._elite(ELITE)
        population = self._fittest([*elite, *self._starters, *self._population, *fresh])
        for _ in range(GENERATIONS if population else 0):
            odds = list(itertools.accumulate(1 / (1 + rank) for rank in range(len(population))))
            children = [self._child(population, odds) for _ in range(CHILDREN)]
            population = self._fittest([*population, *children])
        self._population = [s for s in population if s not in self._seen]
        return population

    def _fittest(self, schedules: Iterable[Schedule]) -> list[Schedule]:
        """The best of different schedules by the model, best first; none while it knows nothing."""
        different = list(dict.fromkeys(schedules))
        scores = self.score(different)
        return [] if scores is None else [different[i] for i in np.argsort(-scores, kind="stable")[:POPULATION]]

    def _child(self, population: list[Schedule], odds: list[float]) -> Schedule:
        mother, father = self.rng.choices(population, cum_weights=odds, k=2)
        if mother.variant == father.variant and self.rng.random() < CROSSOVER_SHARE:
            pairs = zip(mother.knobs, father.knobs, strict=True)
            child = Schedule(mother.variant, tuple(self.rng.choice(pair) for pair in pairs))
            if child != mother and child in self.space:
                return child
        return self.space.neighbor(self.rng, mother) or self.space.sample(self.rng)
