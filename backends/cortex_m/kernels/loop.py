"""A loop that counts: its iteration is divided into kernels like any function, and these are called iteration by
iteration.

Rows that an iteration gathers, and slices that lie as one piece, are read where they are; a row that it scatters is
written where it shall be, and read there by the next iteration where that is carried. Anything else that is carried has
two buffers, of which an iteration reads one and writes the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import ANYWHERE, FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels import dense
from tosaic.backends.cortex_m.kernels.loop_body import LoopBody
from tosaic.backends.cortex_m.kernels.loop_calls import LoopCalls
from tosaic.backends.cortex_m.kernels.mve_match import number
from tosaic.backends.target import Core
from tosaic.support.mlir import functions, ir, parse
from tosaic.tuner.space import Schedule, Variant


@FAMILIES.register
class LoopKernel(KernelFamily):
    """A function of one loop, whose iteration gathers and scatters nothing but the rows of its number.

    Knob `params`: whether the iterations read the constants where they lie, or in scratch memory, where they are
    unpacked first.
    """

    name = "loop"
    rank = -1

    def match(self, function: ir.Operation) -> Workload | None:
        iteration = LoopBody.of(function)
        if iteration is None:
            return None
        return Workload(
            self.name, f"{iteration.count} iterations", {"function": str(function), "iterations": iteration.count}, {}
        )

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        size = len(_generated(str(workload.attributes["function"]), False, core).params)
        places = (
            ("scratch", "memory") if self._copies(size, core) else ("memory", "scratch")[: 1 + (size <= dense.MOST)]
        )
        held = [place for place in places if self.site.holds(self._features(workload, place, core))]
        return (Variant("calls", {"params": tuple(held)}),) if held else ()

    def _copies(self, size: int, core: Core) -> bool:
        """Whether a copy of so many bytes of params, which are read in every iteration, is the better guess."""
        again = Walk((2.0,), (ArrayAccess("params", "params", size, (0.0,)),))
        waits = self.site == ANYWHERE or self.site.waits([again], core.pipeline) > 0
        return waits and size <= _COPIED

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        return _generated(str(workload.attributes["function"]), schedule["params"] == "scratch", core)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return self._features(workload, str(schedule["params"]), core)

    def _features(self, workload: Workload, place: str, core: Core) -> Mapping[str, float]:
        iterations = number(workload, "iterations")
        source = _generated(str(workload.attributes["function"]), place == "scratch", core)
        reads = 1 if place == "scratch" else iterations
        return {
            "iterations": float(iterations),
            "calls": float(iterations * len(source.parts)),
            "constants_read": float(reads * len(source.params)),
            "scratch": float(source.scratch_bytes),
        }


_COPIED = 2**16  # bytes of params that a guess copies to scratch memory


@lru_cache(maxsize=32)
def _generated(text: str, cached: bool, core: Core) -> KernelSource:
    module = parse(text)
    (function,) = functions(module).values()
    iteration = LoopBody.of(function)
    assert iteration is not None
    return LoopCalls(iteration, core).source(cached)
