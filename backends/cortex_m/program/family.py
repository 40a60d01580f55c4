"""Kernel families whose kernels come from programs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import Algorithm, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.program.kernel import Sketched, of_schedule, variants
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule, Variant

VARIANT = "program"


class ProgramFamily(KernelFamily):
    """A family whose kernels are schedules of a program on cores without vectors, and come from a generator with MVE.

    With MVE, `vector_variants` and the others say what `variants` and its like say of all cores; by default there are
    none.
    """

    @abstractmethod
    def sketch(self, workload: Workload) -> Sketched | None:
        """What a workload computes, with its schedules; None where no program does."""

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return ()

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        raise BackendError(f"the family `{self.name}` has no kernels for a {core.name}")

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return ()

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return {}

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if core.mve:
            return self.vector_variants(workload, core)
        what = self.sketch(workload)
        return () if what is None else variants(VARIANT, what, core, self.site)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        if core.mve:
            return self.vector_kernel(workload, schedule, core)
        what = self._sketched(workload)
        return of_schedule(what, schedule, core).source(self.name, what.constants)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        if core.mve:
            return self.vector_trace(workload, schedule, core)
        return of_schedule(self._sketched(workload), schedule, core).steps

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        if core.mve:
            return self.vector_features(workload, schedule, core)
        return of_schedule(self._sketched(workload), schedule, core).features

    def algorithm(self, workload: Workload, core: Core) -> Algorithm | None:
        what = None if core.mve else self.sketch(workload)
        return None if what is None else Algorithm(what.program(), what.constants)

    def _sketched(self, workload: Workload) -> Sketched:
        what = self.sketch(workload)
        assert what is not None, f"no program computes {workload.key}"
        return what
