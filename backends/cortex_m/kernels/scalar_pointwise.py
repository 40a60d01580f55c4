"""Pointwise functions of integers on cores without vectors, as programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernel import Algorithm, KernelSource, Site, Workload
from tosaic.backends.cortex_m.kernels.mve_match import number
from tosaic.backends.cortex_m.nest.elementwise import Elementwise
from tosaic.backends.cortex_m.program.kernel import Built, Knobs, of_schedule, variants
from tosaic.backends.cortex_m.program.pointwise import pointwise
from tosaic.backends.cortex_m.program.sketches.elementwise import unrolled
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Schedule, Variant

_UNROLLED = (4, 2, 1, 8)


@dataclass(frozen=True)
class PointwiseProgram:
    """A pointwise function.

    Args:
        function: its text.
        arguments: how many it has.
        read: what it computes, of its text.
    """

    function: str
    arguments: int
    read: Callable[[str], Elementwise] = field(repr=False, compare=False)

    def _made(self) -> tuple[Program, dict[str, np.ndarray]]:
        return pointwise(self.read(self.function), self.arguments)

    def program(self) -> Program:
        return self._made()[0]

    def constants(self) -> dict[str, np.ndarray]:
        """The constants that the program names."""
        return self._made()[1]

    def steps(self, knobs: Knobs) -> Iterator[str]:
        elements, factor = self.program().loop("x").extent, int(knobs["unroll"])
        if factor > elements:
            raise RefusedError(f"{elements} elements have no turn of {factor}")
        return unrolled(elements, factor)

    def cost(self, knobs: Knobs) -> float:
        return _UNROLLED.index(int(knobs["unroll"]))


def program_of(workload: Workload, read: Callable[[str], Elementwise]) -> PointwiseProgram:
    """The program of what `kernels.pointwise` recognizes."""
    return PointwiseProgram(str(workload.attributes["function"]), number(workload, "arguments"), read)


def offered(what: PointwiseProgram, core: Core, site: Site) -> Sequence[Variant]:
    """Its schedules; none where a program has no operation for it."""
    try:
        what.program()
    except RefusedError:
        return ()
    return variants("program", what, {"unroll": _UNROLLED}, core, site)


def kernel_of(what: PointwiseProgram, schedule: Schedule, core: Core) -> Built:
    """The kernel of a schedule, without its constants.

    Raises:
        RefusedError: the schedule is not legal.
    """
    return of_schedule(what, schedule, core)


def source_of(what: PointwiseProgram, schedule: Schedule, core: Core) -> KernelSource:
    """The kernel of a schedule.

    Raises:
        RefusedError: the schedule is not legal.
    """
    return kernel_of(what, schedule, core).source("pointwise", what.constants())


def algorithm_of(what: PointwiseProgram) -> Algorithm | None:
    """What it computes, for schedules by hand; None where a program has no operation for it."""
    try:
        return Algorithm(what.program(), what.constants())
    except RefusedError:
        return None
