"""A search of a space with schedules that no knobs number."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from synthetic import ENVIRONMENT, Line, analytic

from tosaic.tuner.cost_model import CostModel
from tosaic.tuner.database import Database
from tosaic.tuner.features import Columns
from tosaic.tuner.search.evolutionary import Evolutionary
from tosaic.tuner.space import Schedule, Space
from tosaic.tuner.tune import best, tune


def _steps(count: int) -> Schedule:
    return Schedule.of("steps", steps="step\n" * count)


class Longer:
    """One step more, up to nine; a schedule of a variant has none."""

    def __contains__(self, schedule: Schedule) -> bool:
        return schedule in [_steps(count) for count in range(1, 10)]

    def neighbor(self, rng: random.Random, schedule: Schedule) -> Schedule | None:
        found = _steps(str(dict(schedule.knobs).get("steps", "")).count("\n") + 1)
        return found if found in self else None


@dataclass(frozen=True)
class Stepped(Line):
    """A line beside which each step saves."""

    @property
    def space(self) -> Space:
        return Space(super().space.variants, Longer())

    def features(self, schedule: Schedule) -> dict[str, float]:
        return {"estimate": float(self.cost(schedule))}

    def cost(self, schedule: Schedule) -> int:
        return super().cost(schedule) if schedule.variant == "line" else self.scale - str(schedule["steps"]).count("\n")


def test_mutations_of_mutations_win_and_a_later_run_goes_on_with_them():
    task, database = Stepped("stepped", length=200), Database(":memory:", ENVIRONMENT)
    with ThreadPoolExecutor(1) as pool:
        early, late = (
            tune([(task, 1.0)], analytic, database, trials=trials, executor=pool, workers=1)  # type: ignore[arg-type]
            for trials in (120, 199)
        )
    assert (early.reused, late.reused, late.measured) == (0, 120, 79)
    record = best(database, task)
    assert record is not None and str(record.schedule["steps"]).count("\n") > 1
    assert record.measurement.instructions < task.scale


def test_equal_seeds_propose_the_same_mutations_and_none_twice():
    task = Stepped("stepped", length=40)

    def proposed():
        model = CostModel(0)
        search = Evolutionary(task.space, random.Random(0), partial(model.score, task))
        found = []
        for _ in range(12):
            batch = search.propose(6)
            for schedule in batch:
                search.observe(schedule, task.cost(schedule))
            found += batch
        return found

    first = proposed()
    assert first == proposed() and len(set(first)) == len(first) > 40
    assert {*task.space.schedules(), _steps(1), _steps(2)} <= {*first}


def test_steps_have_no_columns_and_a_short_name():
    task, columns = Stepped("stepped"), Columns()
    for count in (1, 2, 3):
        columns.vector(task, _steps(count))
    assert len(columns) == 2 and str(_steps(2)) == "steps"
    assert Schedule.from_json(_steps(2).to_json()) == _steps(2)
