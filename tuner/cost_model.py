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

    The label is the throughput relative to the best of the same task, from 0 for half of it or a failed trial to 1: so
    tasks of different sizes are comparable, a new task starts from what its kin have taught, and the trees tell the
    good from the better rather than the bad from the worse.

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
        """The predicted label of each schedule, higher is better; None while too little is known."""
        with held_interrupt():
            self._train()
            if self._trees is None:
                return None
            vectors = [self._columns.vector(task, schedule) for schedule in schedules]
            return self._trees.inplace_predict(self._columns.matrix(vectors, self._trees.num_features()))

    def _train(self) -> None:
        new = len(self._samples) - self._before
        first = self._trees is None and len(self._samples) >= ENOUGH_SAMPLES
        if not first and new < max(ENOUGH_SAMPLES, self._trained_on * GROWTH_BEFORE_RETRAINING):
            return
        rows = self._columns.matrix(self._vectors, len(self._columns))
        data = xgboost.QuantileDMatrix(rows, self._labels(), nthread=1, max_bin=PARAMETERS["max_bin"])
        self._trees = xgboost.train(self._parameters, data, ROUNDS)
        self._trained_on = new

    def _labels(self) -> np.ndarray:
        return np.array([max(0.0, 2 * self._best[key] / cost - 1) for key, cost in self._samples])
