"""A CPU kernel as a tuning task: the families that recognize it contribute their variants to one space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tosaic.backends.cortex_m.cmsis_nn import CmsisNnKernels
from tosaic.backends.cortex_m.kernel import KernelFamily, KernelSource, Workload, parsed
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.conv2d_i16 import Conv2dI16
from tosaic.backends.cortex_m.kernels.depthwise import Depthwise
from tosaic.backends.cortex_m.kernels.depthwise_i16 import DepthwiseI16
from tosaic.backends.cortex_m.kernels.linalg import Linalg
from tosaic.backends.cortex_m.kernels.matmul import Matmul
from tosaic.backends.cortex_m.kernels.movement import Movement
from tosaic.backends.cortex_m.kernels.pointwise import Pointwise
from tosaic.backends.cortex_m.kernels.pool import Pool
from tosaic.backends.cortex_m.kernels.reduction import Reduction
from tosaic.backends.cortex_m.linalg import kernel_module
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError
from tosaic.support.functions import computing_ops, returned
from tosaic.support.mlir import functions, ir, shape_of, walk
from tosaic.support.tosa_ops import BOUNDED
from tosaic.tuner.space import Schedule, Space, Variant

FAMILIES: list[KernelFamily] = [
    Conv2d(),
    Conv2dI16(),
    Depthwise(),
    DepthwiseI16(),
    Matmul(),
    Pointwise(),
    Pool(),
    Reduction(),
    Movement(),
    CmsisNnKernels(),
    Linalg(),
]
"""Every kernel family, best untuned guess first; the last one covers every function."""


@dataclass(frozen=True)
class KernelTask:
    """One outlined CPU function, its meaning and its schedule space. Plain data: it travels to worker processes.

    A schedule's variant is `<family>.<variant>`.

    Args:
        function: the text of the function, of tosa ops.
        core: the core that runs it.
        families: where any of these families has a variant, no other family is asked; empty admits all.
        inputs: dense bytes of the arguments to measure with; random ones when empty.
    """

    function: str
    core: Core
    families: tuple[str, ...] = ()
    inputs: tuple[bytes, ...] = ()

    @staticmethod
    def of(
        function: ir.Operation, core: Core, families: Sequence[str] = (), inputs: Sequence[bytes] = ()
    ) -> KernelTask:
        """The task of a `func.func`; its name and annotations do not matter."""
        module = kernel_module(function, "main")
        (kernel,) = functions(module).values()
        return KernelTask(str(kernel), core, tuple(families), tuple(inputs))

    @property
    def module(self) -> str:
        """The kernel's meaning: a TOSA module whose `main` has the kernel's arguments and results."""
        return f"module {{\n{self.function}\n}}\n"

    @property
    def exact(self) -> bool:
        """Whether TOSA defines every result to the bit, so that a candidate can be told right from wrong."""
        (kernel,) = functions(parsed(self.function)).values()
        return not any(op.name in BOUNDED and "f32" in str(op.results[0].type) for op in walk(kernel))

    @property
    def key(self) -> str:
        """The workload: equal keys share records."""
        parts = [f"core: {self.core.name}", *([f"families: {', '.join(self.families)}"] if self.families else [])]
        parts += [f"{family.name}: {workload.key}" for family, workload in _matches(self.function)]
        return "\n".join(parts)

    @property
    def name(self) -> str:
        """The ops and the shape of the first result, e.g. `conv2d+rescale 1x32x32x16`."""
        (kernel,) = functions(parsed(self.function)).values()
        ops = [op.name.removeprefix("tosa.") for op in computing_ops(kernel)]
        shape = "x".join(str(extent) for extent in shape_of(returned(kernel)[0]))
        return f"{'+'.join(dict.fromkeys(ops))} {shape}"

    @property
    def space(self) -> Space:
        offered = {
            family.name: [
                Variant(f"{family.name}.{variant.name}", variant.knobs, variant.legal)
                for variant in family.variants(workload, self.core)
            ]
            for family, workload in _matches(self.function)
        }
        chosen = [variant for name in self.families for variant in offered.get(name, [])]
        return Space(tuple(chosen or [variant for variants in offered.values() for variant in variants]))

    def default(self) -> Schedule:
        """The best guess without a measurement."""
        return self.space.default()

    def generate(self, schedule: Schedule) -> KernelSource:
        """The kernel of one schedule of `space`.

        Raises:
            Error: this schedule cannot be generated.
        """
        family, workload, own = self._owner(schedule)
        return family.generate(workload, own, self.core)

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        """Static features of the generated code, by name."""
        family, workload, own = self._owner(schedule)
        return {f"{family.name}.{k}": v for k, v in family.features(workload, own, self.core).items()}

    def _owner(self, schedule: Schedule) -> tuple[KernelFamily, Workload, Schedule]:
        name, _, variant = schedule.variant.partition(".")
        for family, workload in _matches(self.function):
            if family.name == name:
                return family, workload, Schedule(variant, schedule.knobs)
        raise BackendError(
            f"no kernel family `{name}` covers this function",
            why=f"the schedule is {schedule}",
            hint="it may come from the records of another version; tune again",
        )


@lru_cache(maxsize=256)
def _matches(function: str) -> list[tuple[KernelFamily, Workload]]:
    """The families that recognize a function, in order, with what they recognized."""
    (kernel,) = functions(parsed(function)).values()
    found = [(family, family.match(kernel)) for family in FAMILIES]
    return [(family, workload) for family, workload in found if workload is not None]
