"""The kernels that a build is made of, and how each was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.program.schedule import Step, print_steps
from tosaic.backends.cortex_m.streams.task import StreamTask
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.tuner.database import Record
from tosaic.tuner.space import Schedule

AnyTask = KernelTask | StreamTask


@dataclass(frozen=True)
class ChosenKernel:
    """The kernel of one CPU function, and how it was chosen.

    Args:
        record: the trial that won; None where no trial can tell right from wrong.
        trials: how many schedules of its task have a record; one is the proof of the default alone.
        curve: the number of each trial that was better than all before it, and its cost.
    """

    task: AnyTask
    schedule: Schedule
    source: KernelSource
    record: Record | None
    trials: int
    curve: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> Sequence[Step] | None:
        """Its schedule as it can be given by hand; None where it is no program."""
        task = self.task
        if not isinstance(task, KernelTask) or not task.is_program(self.schedule):
            return None
        return task.trace(self.schedule)

    @property
    def given(self) -> bool:
        """Whether its schedule was given by hand."""
        return isinstance(self.task, KernelTask) and self.task.given is not None


def schedules_text(kernels: Mapping[str, ChosenKernel]) -> str:
    """The schedules of the kernels that are programs, as `Schedules.read` takes them."""
    return "\n".join(
        f"[{name}: {kernel.schedule.variant.partition('.')[0]}]  # {kernel.task.name}\n{print_steps(kernel.steps)}"
        for name, kernel in kernels.items()
        if kernel.steps is not None
    )
