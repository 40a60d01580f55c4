"""Predicts how fast a schedule is, from what was measured of its task and of its kin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import xgboost

from tosaic.tuner.database import Record
from tosaic.tuner.features import Columns
from tosaic.tuner.interrupts import held_interrupt
from tosaic.tuner.measurement import Task
from tosaic.tuner.space import Schedule

ENOUGH_SAMPLES = 16
GROWTH_BEFORE_RETRAINING = 1.125
# Doublings of the best cost that a failed trial counts as, and one that is slower still.
FAILED = 2.0
ROUNDS = 48
PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_depth": 5,
    "max_bin": 64,
    "eta": 0.2,
    "subsample": 0.9,
    "colsample_bytree": 0.8,
    "nthread": 1,
    "verbosity": 0,
}


class CostModel:
    """Gradient-boosted trees over every task of a tuning run, and over what is known of others.

    They learn by how many doublings a schedule's cost misses what its features promise (`features.PROMISES`). Where
    these promise nothing, they learn by how many it misses the best cost of the task. So tasks of different sizes are
    comparable, and a new task starts from what its kin have taught. Promises alone rank the schedules of a task that
    nothing is known of. A sample weighs as much as its speed relative to the best, squared: the trees tell the good
    from the better rather than the bad from the worse.

    Equal observations in equal order and an equal seed give equal predictions.
    """

    def __init__(self, seed: int) -> None:
        self._parameters = {**PARAMETERS, "seed": seed & 0x7FFFFFFF}
        self._columns = Columns()
        self._vectors: list[np.ndarray] = []
        self._samples: list[tuple[str, float]] = []
        self._best: dict[str, float] = {}
        self._before = 0
        self._trees: xgboost.Booster | None = None
        self._trained_on = 0

    def start_from(self, known: Iterable[tuple[Record, float]]) -> None:
        """Learn what the trials of other tasks cost."""
        for record, cost in known:
            self.observe(record, cost)
        self._before = len(self._samples)

    def observe(self, record: Record, cost: float) -> None:
        """Learn what a trial costs; infinity for a failed one."""
        self._vectors.append(self._columns.encode(record.schedule, record.features))
        self._samples.append((record.key, cost))
        self._best[record.key] = min(cost, self._best.get(record.key, math.inf))

    def score(self, task: Task, schedules: Sequence[Schedule]) -> np.ndarray | None:
        """Minus the logarithm of each schedule's predicted cost, to base 2; None while nothing can be predicted."""
        with held_interrupt():
            self._train()
            vectors = [self._columns.vector(task, schedule) for schedule in schedules]
            rows = self._columns.matrix(vectors, len(self._columns))
            promised = self._columns.promised(rows)
            if self._trees is None and np.isnan(promised).all():
                return None
            expected = np.where(np.isnan(promised), self._least(task.key), promised)
            if self._trees is None:
                return -expected
            known = np.ascontiguousarray(rows[:, : self._trees.num_features()])
            return -expected - self._trees.inplace_predict(known)

    def _least(self, key: str) -> float:
        """The logarithm of the best known cost of a task; 0 where no trial has succeeded."""
        best = self._best.get(key, math.inf)
        return math.log2(1 + best) if math.isfinite(best) else 0.0

    def _train(self) -> None:
        new = len(self._samples) - self._before
        first = self._trees is None and len(self._samples) >= ENOUGH_SAMPLES
        if not first and new < max(ENOUGH_SAMPLES, self._trained_on * GROWTH_BEFORE_RETRAINING):
            return
        rows = self._columns.matrix(self._vectors, len(self._columns))
        least = np.array([self._least(key) for key, _ in self._samples])
        behind = np.minimum(np.log2([1 + cost for _, cost in self._samples]) - least, FAILED)
        promised = self._columns.promised(rows)
        missed = least + behind - np.where(np.isnan(promised), least, promised)
        weights = np.exp2(-2 * behind)
        bins = PARAMETERS["max_bin"]
        data = xgboost.QuantileDMatrix(rows, missed, weight=weights, nthread=1, max_bin=bins)
        self._trees = xgboost.train(self._parameters, data, ROUNDS)
        self._trained_on = new
