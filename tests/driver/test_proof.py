from dataclasses import dataclass

import pytest

from tosaic import proof
from tosaic.options import Tuning
from tosaic.proof import prove_kernels
from tosaic.support.errors import BackendError
from tosaic.tuner.database import Record
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule, Space, Variant
from tosaic.tuner.tune import best
from tosaic.tuning import open_records


@dataclass(frozen=True)
class Task:
    """A task whose variants `bad...` are wrong."""

    key: str
    variants: tuple[str, ...]
    exact: bool = True
    core: None = None

    @property
    def name(self) -> str:
        return self.key

    @property
    def space(self) -> Space:
        return Space(tuple(Variant(name, {"unroll": (1, 2)}) for name in self.variants))

    def features(self, schedule: Schedule) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class Judge:
    def __call__(self, task, schedules):
        return [
            Measurement("wrong", message="byte 3") if s.variant.startswith("bad") else Measurement("ok", 10, 20)
            for s in schedules
        ]


class Inline:
    """Runs batches in this process, as the tests' classes cannot be imported by a worker."""

    def __init__(self, count: int) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, measure, task, schedules):
        result = measure(task, schedules)

        class Done:
            def result(self):
                return result

        return Done()


@pytest.fixture
def options(monkeypatch, tmp_path):
    monkeypatch.setattr(proof, "LocalWorkers", Inline)
    monkeypatch.setattr(proof, "simulated_measure", lambda core, seed: Judge())
    return Tuning(records=tmp_path / "records.db")


def test_each_workload_is_tried_once_and_never_again(options):
    tasks = {"a": Task("conv", ("good",)), "b": Task("conv", ("good",)), "c": Task("pool", ("good",))}
    assert prove_kernels(tasks, options) == 2
    assert prove_kernels(tasks, options) == 0


def test_a_wrong_default_gives_way_to_the_next_variant(options):
    task = Task("conv", ("bad", "worse", "good"))
    assert prove_kernels({"a": task}, options) == 2
    with open_records(options.records) as database:
        assert best(database, task).schedule == Schedule.of("worse", unroll=1)


def test_a_kernel_without_a_right_variant_is_an_error(options):
    with pytest.raises(BackendError, match=r"no kernel of `conv` equals the reference model\n.*byte 3"):
        prove_kernels({"a": Task("conv", ("bad", "bad2"))}, options)
    with pytest.raises(BackendError, match="every variant has failed before"):
        prove_kernels({"a": Task("conv", ("bad", "bad2"))}, options)


def test_what_the_spec_leaves_inexact_is_not_judged(options):
    assert prove_kernels({"a": Task("exp", ("bad",), exact=False)}, options) == 0


def test_a_proven_task_needs_no_proof(options):
    task = Task("conv", ("bad", "good"))
    with open_records(options.records) as database:
        database.append([Record("conv", Schedule.of("good", unroll=2), Measurement("ok", 1, 1))])
    assert prove_kernels({"a": task}, options) == 0
