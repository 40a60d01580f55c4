"""What records of other tasks say of a task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tosaic.tuner.database import Record
from tosaic.tuner.measurement import Task
from tosaic.tuner.space import Schedule


def nearest(task: Task, bests: Iterable[Record], count: int) -> list[Schedule]:
    """The best schedules of up to `count` other tasks, where the task's space holds them, nearest first.

    Near is a task on which the same schedule has like features: their distance is taken between logarithms.
    """
    space = task.space
    distances: dict[Schedule, float] = {}
    for record in bests:
        if record.key != task.key and record.schedule in space:
            distance = _distance(record.features, task.features(record.schedule))
            distances[record.schedule] = min(distance, distances.get(record.schedule, math.inf))
    return sorted(distances, key=lambda schedule: (distances[schedule], schedule.to_json()))[:count]


def _distance(there: Mapping[str, float], here: Mapping[str, float]) -> float:
    names = there.keys() | here.keys()
    return math.hypot(*(_scaled(there.get(name, 0.0)) - _scaled(here.get(name, 0.0)) for name in names))


def _scaled(value: float) -> float:
    return math.copysign(math.log2(1 + abs(value)), value)
