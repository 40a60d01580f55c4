"""Kernels of several tasks in one run: a process, a link and a start of the machine for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.simulators.measure import BatchMeasure, BuildableTask, Candidate
from tosaic.backends.simulators.trial_examples import examples
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule

_NUMBER = "number"


@dataclass(frozen=True)
class KernelBatch:
    """Kernels, each with its task; those of one task stand together. Plain data: it travels to worker processes."""

    kernels: tuple[tuple[BuildableTask, KernelSource], ...]

    @property
    def name(self) -> str:
        """The names of the tasks."""
        return ", ".join(dict.fromkeys(task.name for task, _ in self.kernels))

    @property
    def schedules(self) -> list[Schedule]:
        """What names each kernel to a measure."""
        return [Schedule.of("kernel", **{_NUMBER: number}) for number in range(len(self.kernels))]


@dataclass(frozen=True)
class KernelBatchMeasure:
    """A `tuner.measurement.Measure` of the kernels of a `KernelBatch`, with the results of its tasks' own measure."""

    measure: BatchMeasure

    def __call__(
        self, batch: KernelBatch, schedules: Sequence[Schedule], _best: Measurement | None = None, /
    ) -> list[Measurement]:
        """One measurement per schedule, in order.

        Raises:
            Error: the tools or a task are at fault, not a kernel.
        """
        chosen = [batch.kernels[int(schedule[_NUMBER])] for schedule in schedules]
        candidates = {
            number: Candidate.of(task, source, examples(task.module, self.measure.seed, task.inputs))
            for number, (task, source) in enumerate(chosen)
        }
        results = self.measure.kernels(candidates)
        return [results[number] for number in range(len(schedules))]
