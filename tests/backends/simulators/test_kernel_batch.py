"""Kernels of several tasks in one run: each as its own task's measure judges and prices it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from maximum import MODULE, MaximumTask

from tosaic.backends.boards import MPS3_AN547
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.simulators.kernel_batch import KernelBatch, KernelBatchMeasure
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.compiler.trials import Trials
from tosaic.target_files.ready import find_target
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule

MEASURE = BatchMeasure(Qemu(CORTEX_M55, MPS3_AN547), CORTEX_M55, find_target("cortex-m55").trials)


@dataclass(frozen=True)
class LesserTask(MaximumTask):
    """The minimum, of 40 numbers; the same variants, with as many inputs of another size."""

    name: str = "minimum"
    module: str = MODULE.replace("100", "40").replace("maximum", "minimum")

    def generate(self, schedule: Schedule) -> KernelSource:
        source = super().generate(schedule)
        text = source.text.replace(" > ", " < ").replace("maximum", "minimum")
        text = re.sub(r"\b(99|10[01])\b", lambda size: str(int(size[0]) - 60), text)
        return replace(source, symbol=source.symbol.replace("maximum", "minimum"), text=text)


def batch_of(*trials):
    return KernelBatch(tuple((task, task.generate(Schedule(name))) for task, name in trials))


def test_each_kernel_is_judged_by_its_own_task():
    larger, lesser = MaximumTask(), LesserTask()
    trials = [(larger, "good"), (larger, "last"), (lesser, "table"), (lesser, "good"), (larger, "table")]
    batch = batch_of(*trials)
    together = KernelBatchMeasure(MEASURE)(batch, batch.schedules)
    assert together == [MEASURE(task, [Schedule(name)])[0] for task, name in trials]
    assert [m.status for m in together] == ["ok", "wrong", "ok", "ok", "ok"]
    assert batch.name == "maximum, minimum"


def test_one_that_ends_the_run_leaves_those_behind_it_to_another():
    larger, lesser = MaximumTask(), LesserTask()
    batch = batch_of((larger, "good"), (lesser, "crash"), (lesser, "beyond"), (larger, "broken"), (lesser, "good"))
    results = KernelBatchMeasure(MEASURE)(batch, batch.schedules)
    assert [m.status for m in results] == ["ok", "crash", "wrong", "compile-error", "ok"]
    assert results[2].message == "wrote beyond the ends of argument 2"


def test_some_of_a_batch_are_measured():
    batch = batch_of((MaximumTask(), "good"), (LesserTask(), "last"), (LesserTask(), "good"))
    results = KernelBatchMeasure(MEASURE)(batch, batch.schedules[1:])
    assert [(m.status, m.code) for m in results] == [("wrong", "minimum_last"), ("ok", "minimum_good")]


@dataclass(frozen=True)
class Done:
    measured: list[Measurement]

    def result(self) -> list[Measurement]:
        return self.measured


class Inline:
    """Runs batches in this process, as an executor of so many `slots`."""

    def __init__(self, slots: int) -> None:
        self.slots, self.sizes = slots, list[int]()

    def submit(self, measure, task, schedules, best=None) -> Done:
        self.sizes.append(len(schedules))
        return Done(measure(task, schedules, best))


def test_trials_are_as_few_batches_as_there_are_workers():
    wanted = [(MaximumTask(), Schedule(name)) for name in ("good", "refused", "last")] + [
        (LesserTask(), Schedule(name)) for name in ("good", "table")
    ]
    workers = Inline(2)
    results = Trials(MEASURE, workers)(wanted)
    assert [m.status for m in results] == ["ok", "illegal", "wrong", "ok", "ok"]
    assert results[1].message == "no such kernel" and workers.sizes == [2, 2]
    many = Inline(1)
    Trials(MEASURE, many)([(MaximumTask(), Schedule("good"))] * 20)
    assert many.sizes == [16, 4]
