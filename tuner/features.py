"""Schedules as numbers, for the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tosaic.tuner.measurement import Task
from tosaic.tuner.space import Schedule, is_text

PROMISES = ("estimate", "estimate_with_waits")
"""Features, by the last part of their names, that promise a cost; the greatest of a schedule's is its promise."""


class Columns:
    """The column map that all tasks of one tuning run share.

    A column is a name: `variant=gemm` and `gemm.order=nhwc` (1 where chosen), `gemm.rows` (a number knob), or a
    feature's own name. Names get their column at first sight, so the map only grows; tasks of one family fill the same
    columns, which is what lets one task learn from another. A column that a schedule does not have is NaN (XGBoost's
    "missing"). Numbers are scaled to sign(x) log2(1 + |x|).
    """

    def __init__(self) -> None:
        self._column: dict[str, int] = {}
        self._promises: list[int] = []
        self._vectors: dict[tuple[str, Schedule], np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._column)

    def vector(self, task: Task, schedule: Schedule) -> np.ndarray:
        """The features of `schedule` as f32 of at most `len(self)` columns; what lies beyond is missing."""
        found = self._vectors.get((task.key, schedule))
        if found is None:
            found = self._vectors[task.key, schedule] = self.encode(schedule, task.features(schedule))
        return found

    def matrix(self, vectors: Sequence[np.ndarray], width: int) -> np.ndarray:
        """`vectors` as the rows of an f32 matrix of `width` columns, padded with NaN or cut."""
        rows = np.full((len(vectors), width), np.nan, np.float32)
        for row, vector in zip(rows, vectors, strict=True):
            row[: len(vector)] = vector[:width]
        return rows

    def promised(self, rows: np.ndarray) -> np.ndarray:
        """The promise of each row of a matrix, scaled as all numbers are; NaN where it has none."""
        return np.fmax.reduce(rows[:, self._promises], axis=1, initial=np.nan)

    def encode(self, schedule: Schedule, features: Mapping[str, float]) -> np.ndarray:
        """The vector of a schedule whose features are known."""
        pairs = [*_decisions(schedule), *features.items()]
        where = [self._at(name) for name, _ in pairs]
        values = np.fromiter((value for _, value in pairs), np.float32, len(pairs))
        vector = np.full(max(where) + 1, np.nan, np.float32)
        vector[where] = np.sign(values) * np.log2(1 + np.abs(values))
        return vector

    def _at(self, name: str) -> int:
        if name not in self._column:
            if name.rpartition(".")[2] in PROMISES:
                self._promises.append(len(self._column))
            self._column[name] = len(self._column)
        return self._column[name]


def _decisions(schedule: Schedule) -> Iterator[tuple[str, float]]:
    yield f"variant={schedule.variant}", 1.0
    for knob, value in schedule.knobs:
        if is_text(value):
            continue
        if isinstance(value, str):
            yield f"{schedule.variant}.{knob}={value}", 1.0
        else:
            yield f"{schedule.variant}.{knob}", float(value)
