from dataclasses import dataclass, replace

import pytest

from tosaic.compiler.proof import prove_kernels
from tosaic.compiler.tuning import open_records
from tosaic.support.errors import BackendError
from tosaic.tuner.database import Record
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule, Space, Variant
from tosaic.tuner.tune import best


@dataclass(frozen=True)
class Task:
    """A task whose variants `bad...` are wrong."""

    key: str
    variants: tuple[str, ...]
    exact: bool = True
    text: str = ""

    @property
    def name(self) -> str:
        return self.key

    @property
    def space(self) -> Space:
        return Space(tuple(Variant(name, {"unroll": (1, 2)}) for name in self.variants))

    def code(self, schedule: Schedule) -> str:
        return self.text

    def features(self, schedule: Schedule) -> dict[str, float]:
        return {}


def judge(trials):
    return [
        replace(
            Measurement("wrong", message="byte 3") if s.variant.startswith("bad") else Measurement("ok", 10, 20),
            code=task.text,
        )
        for task, s in trials
    ]


@pytest.fixture
def database(tmp_path):
    with open_records(tmp_path / "records.db") as opened:
        yield opened


@pytest.fixture
def prove(database):
    return lambda tasks: prove_kernels(tasks, database, judge, "cycles")


def test_each_workload_is_tried_once_and_never_again(prove):
    tasks = {"a": Task("conv", ("good",)), "b": Task("conv", ("good",)), "c": Task("pool", ("good",))}
    assert set(prove(tasks)) == {"conv", "pool"}
    assert prove(tasks) == {}


def test_a_wrong_default_gives_way_to_the_next_variant_and_is_told(prove, database):
    task = Task("conv", ("bad", "worse", "good"))
    assert prove({"a": task})["conv"].refuted == ["bad(unroll=1): wrong: byte 3"]
    proven = best(database, task)
    assert proven and proven.schedule == Schedule.of("worse", unroll=1)


def test_what_is_best_on_the_nearest_task_is_tried_beside_the_default(prove, database):
    database.append([Record("kin", Schedule.of("good", unroll=2), Measurement("ok", 1, 1))])
    proof = prove({"a": Task("conv", ("good", "better"))})["conv"]
    assert proof.tried == 2 and not proof.refuted
    assert [r.schedule["unroll"] for r in database.records("conv")] == [1, 2]


def test_a_schedule_of_the_nearest_task_that_is_wrong_here_leaves_the_default(prove, database):
    database.append([Record("kin", Schedule.of("bad", unroll=2), Measurement("ok", 1, 1))])
    task = Task("conv", ("good", "bad"))
    assert prove({"a": task})["conv"].refuted == ["bad(unroll=2): wrong: byte 3"]
    proven = best(database, task)
    assert proven and proven.schedule == Schedule.of("good", unroll=1)


def test_a_kernel_without_a_right_variant_is_an_error(prove):
    with pytest.raises(BackendError, match=r"no kernel of `conv` equals the reference model\n.*byte 3"):
        prove({"a": Task("conv", ("bad", "bad2"))})
    with pytest.raises(BackendError, match="every variant has failed before"):
        prove({"a": Task("conv", ("bad", "bad2"))})


def test_what_the_spec_leaves_inexact_is_not_judged(prove):
    assert prove({"a": Task("exp", ("bad",), exact=False)}) == {}


def test_a_proven_task_needs_no_proof(prove, database):
    database.append([Record("conv", Schedule.of("good", unroll=2), Measurement("ok", 1, 1))])
    assert prove({"a": Task("conv", ("bad", "good"))}) == {}


def test_a_record_of_other_code_proves_nothing(prove, database):
    assert set(prove({"a": Task("conv", ("good",), text="of yesterday")})) == {"conv"}
    today = Task("conv", ("good",), text="of today")
    assert best(database, today) is None
    assert set(prove({"a": today})) == {"conv"}
    assert best(database, today) and prove({"a": today}) == {}


def test_what_was_late_is_not_recorded(database):
    late = Record("conv", Schedule.of("good", unroll=1), Measurement("late", message="no answer within 300 s"))
    assert database.append([late]) == 0 and database.records("conv") == []
