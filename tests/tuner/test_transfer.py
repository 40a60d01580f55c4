"""What other tasks' records say: nearest first, and only what the space holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from synthetic import ENVIRONMENT, Gemm, Line, analytic, record

from tosaic.tuner.database import Database
from tosaic.tuner.space import Schedule
from tosaic.tuner.transfer import nearest
from tosaic.tuner.tune import tune


@dataclass(frozen=True)
class Sized(Line):
    """A line whose features tell its size."""

    size: int = 1

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        return {"size": self.size, **super().features(schedule)}


def _best(task: Sized, x: int):
    return record(task, Schedule.of("line", x=x), 5)


def test_the_nearest_task_comes_first():
    known = [_best(Sized("far", size=4096), 1), _best(Sized("near", size=300), 2), _best(Sized("same", size=256), 3)]
    task = Sized("new", size=255)
    assert [schedule["x"] for schedule in nearest(task, known, 9)] == [3, 2, 1]
    assert [schedule["x"] for schedule in nearest(task, known, 1)] == [3]


def test_the_task_itself_and_schedules_beyond_its_space_do_not_count():
    known = [_best(Sized("new"), 1), _best(Sized("other"), 39), record(Gemm(), Gemm().space.default(), 1)]
    assert nearest(Sized("new", length=20), known, 9) == []


def test_a_database_gives_the_best_of_each_workload_and_the_last_of_others():
    with Database(":memory:", ENVIRONMENT) as database:
        tasks = [Line("a", valley=3), Line("b", valley=30)]
        database.append(
            record(t, Schedule.of("line", x=x), t.cost(Schedule.of("line", x=x))) for t in tasks for x in range(40)
        )
        assert [(best.key, best.schedule["x"]) for best in database.bests("cycles")] == [("a", 3), ("b", 30)]
        assert [(r.key, r.schedule["x"]) for r in database.recent(2)] == [("b", 39), ("b", 38)]
        assert {r.key for r in database.recent(100, ["b"])} == {"a"}
        assert database.recent(1)[0].features == {"x": 39.0}


def test_a_new_task_starts_from_the_best_of_its_kin():
    class Log:
        def __init__(self):
            self.seen = []

        def __call__(self, task, schedules, best=None):
            self.seen += schedules
            return analytic(task, schedules)

    class Inline:
        def submit(self, measure, task, schedules, best=None):
            found = measure(task, schedules, best)

            class Done:
                def result(self):
                    return found

            return Done()

    with Database(":memory:", ENVIRONMENT) as database:
        first = tune([(Gemm(64), 1.0)], analytic, database, trials=300, executor=Inline(), workers=1)
        log = Log()
        again = tune([(Gemm(96), 1.0)], log, database, trials=24, executor=Inline(), workers=1)
    assert log.seen[1] == first.best["gemm 64"].schedule
    cost = first.best["gemm 64"].measurement.instructions / 64**3
    assert again.best["gemm 96"].measurement.instructions / 96**3 <= cost * 1.001
