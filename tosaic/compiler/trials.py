"""Single schedules of many tasks, tried together."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.simulators.kernel_batch import KernelBatch, KernelBatchMeasure
from tosaic.backends.simulators.measure import BatchMeasure, BuildableTask
from tosaic.compiler.chosen import AnyTask
from tosaic.support.errors import Error
from tosaic.tuner.measure import Executor
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule

_MOST = 16
"""Kernels that one process tries in one run."""

TryAll = Callable[[Sequence[tuple[AnyTask, Schedule]]], list[Measurement]]
"""One measurement for each schedule of a task, in order."""


@dataclass(frozen=True)
class Trials:
    """Tries schedules whose kernels this process needs too: it makes these, and the workers run them.

    Args:
        measure: what tries the kernels of a task.
        executor: where they run.
    """

    measure: BatchMeasure
    executor: Executor

    def __call__(self, trials: Sequence[tuple[BuildableTask, Schedule]]) -> list[Measurement]:
        """A measurement of each; one whose kernel cannot be made is `illegal`.

        Raises:
            Error: the tools or a task are at fault, not a schedule.
        """
        results: dict[int, Measurement] = {}
        sources: dict[int, KernelSource] = {}
        for number, (task, schedule) in enumerate(trials):
            try:
                sources[number] = task.generate(schedule)
            except Error as error:
                results[number] = Measurement("illegal", message=str(error))
        flying = []
        for numbers in self._batches(list(sources)):
            batch = KernelBatch(tuple((trials[number][0], sources[number]) for number in numbers))
            pending = self.executor.submit(KernelBatchMeasure(self.measure), batch, batch.schedules)
            flying.append((numbers, pending))
        for numbers, pending in flying:
            results |= zip(numbers, pending.result(), strict=True)
        return [results[number] for number in range(len(trials))]

    def _batches(self, numbers: Sequence[int]) -> list[Sequence[int]]:
        """As few as there are workers, or more that are not too large."""
        workers = getattr(self.executor, "slots", None) or os.cpu_count() or 1
        size = min(_MOST, max(1, math.ceil(len(numbers) / workers)))
        return [numbers[first : first + size] for first in range(0, len(numbers), size)]
