"""Kernel families whose kernels come from programs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from tosaic.backends.cortex_m.kernel import ANYWHERE, STEPS, Algorithm, KernelFamily, KernelSource, Site, Workload
from tosaic.backends.cortex_m.program.guesses import cheapest_first
from tosaic.backends.cortex_m.program.kernel import Sketched, features_of, of_schedule
from tosaic.backends.cortex_m.program.schedule import Step, parse_steps, replayed
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError, Error
from tosaic.tuner.space import Schedule, Variant

VARIANT = "program"
_WORKLOADS = 2
"""Whose sketches a family keeps: a task has a family of its own."""


class ProgramFamily(KernelFamily):
    """A family whose kernels are schedules of a program."""

    def __init__(self, libraries: Mapping[str, Path] = MappingProxyType({}), site: Site = ANYWHERE) -> None:
        super().__init__(libraries, site)
        self._sketched = lru_cache(maxsize=_WORKLOADS)(self._sketches)

    @abstractmethod
    def sketch(self, workload: Workload) -> Sketched | None:
        """What a workload computes, with its schedules; None where no program does."""

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        """The schedules of its program for cores with MVE, by the name of the variant.

        Their programs may differ, and be not that of `sketch`.
        """
        return {}

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return cheapest_first(self._sketched(workload, core), core, self.site)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        what = self._known(workload, schedule, core)
        return of_schedule(what, schedule, core).source(self.name, what.constants)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return of_schedule(self._known(workload, schedule, core), schedule, core).steps

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return features_of(self._known(workload, schedule, core), schedule, core, self.site)

    def algorithm(self, workload: Workload, core: Core, steps: Sequence[Step] = ()) -> Algorithm | None:
        what = self._algorithm(workload, core, steps)
        return None if what is None else Algorithm(what.program(), what.constants)

    def is_program(self, workload: Workload, schedule: Schedule, core: Core) -> bool:
        return self._program(workload, schedule, core) is not None

    def _sketches(self, workload: Workload, core: Core) -> Mapping[str, Sketched]:
        """The schedules of its program on a core, by the name of the variant."""
        if core.mve:
            return self.vector_sketches(workload)
        what = self.sketch(workload)
        return {} if what is None else {VARIANT: what}

    def _algorithm(self, workload: Workload, core: Core, steps: Sequence[Step]) -> Sketched | None:
        """What steps that are given by hand begin with."""
        sketches = list(self._sketched(workload, core).values())
        for what in sketches if steps else ():
            with suppress(Error):
                replayed(what.program(), tuple(steps))
                return what
        return sketches[0] if sketches else self.sketch(workload)

    def _known(self, workload: Workload, schedule: Schedule, core: Core) -> Sketched:
        """What the kernel of a schedule is a program of.

        Raises:
            BackendError: the family has no such variant.
        """
        what = self._program(workload, schedule, core)
        if what is None:
            raise BackendError(f"the family `{self.name}` has no variant `{schedule.variant}` for a {core.name}")
        return what

    def _program(self, workload: Workload, schedule: Schedule, core: Core) -> Sketched | None:
        if schedule.variant == STEPS:
            return self._algorithm(workload, core, parse_steps(str(schedule[STEPS])))
        return self._sketched(workload, core).get(schedule.variant)


class FloatFamily(ProgramFamily):
    """A family of floats: its kernels are programs on cores with instructions for them."""

    def _sketches(self, workload: Workload, core: Core) -> Mapping[str, Sketched]:
        return super()._sketches(workload, core) if ("mve.fp" if core.mve else "fp") in core.isa else {}
