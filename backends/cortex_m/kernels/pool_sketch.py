"""MAX_POOL2D and AVG_POOL2D with the numbers that their schedules leave open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import normalized, scales
from tosaic.backends.cortex_m.program import windows
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_FEW = 16


@dataclass(frozen=True)
class PoolProgram:
    """MAX_POOL2D or AVG_POOL2D, before any step.

    Args:
        dtypes: of the input and the output.
        by_place: whether windows reach beyond the image, so that averages are of different counts.
    """

    geometry: Geometry
    dtypes: tuple[str, str]
    average: bool
    by_place: bool
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    def program(self) -> Program:
        return windows.pool(self.geometry, self.dtypes, self.average, self.by_place)

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return math.prod(self.geometry.kernel)


class PoolSketch(PoolProgram):
    """A pool on cores without vectors."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `taps`, whether a window is written out, where it has edges only inside of the
        image; `scale`, the form of the RESCALE."""
        return {"taps": ("unrolled", "loops"), "scale": scales(self.constants) if self.average else ("wide",)}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        g = self.geometry
        if knobs["taps"] == "unrolled" and self.taps > _FEW:
            raise RefusedError(f"a window of {self.taps} elements is not written out")
        edges = [
            _whole(*each) for each in zip(g.kernel, g.stride, (g.pad[0], g.pad[2]), (g.height, g.width), strict=True)
        ]
        counts = (g.rows, g.columns)
        if any(g.pad) and any(first >= min(end, count) for (first, end), count in zip(edges, counts, strict=True)):
            edges = []
        if knobs["taps"] == "unrolled" and any(g.pad) and not edges:
            raise RefusedError("no window lies inside of the image")
        return self._steps(knobs, edges)

    def _steps(self, knobs: Knobs, whole: list[tuple[int, int]]) -> Iterator[str]:
        if knobs["scale"] == "high":
            yield "rewrite(out, high)"
        yield from ("compute_at(S, n)", "place(S, r)")
        if knobs["taps"] == "loops":
            return
        suffix, taken = "", {""}
        if any(self.geometry.pad):
            for name, count, (first, end) in zip("yx", (self.geometry.rows, self.geometry.columns), whole, strict=True):
                if first:
                    yield f"cut({name}{suffix}, {first})"
                    suffix = _behind(suffix, taken)
                if end < count:
                    yield f"cut({name}{suffix}, {end - first})"
                    _behind(suffix, taken)
            yield f"decide(x{suffix})"
        for name, taps in zip("yx", self.geometry.kernel, strict=True):
            if taps > 1:
                yield f"unroll(k{name}{suffix})"

    def cost(self, knobs: Knobs) -> float:
        return (knobs["scale"] == "wide") + (knobs["taps"] == "loops") / 2


def constants_of(geometry: Geometry, constants: Mapping[str, np.ndarray], by_place: bool) -> dict[str, np.ndarray]:
    """The constants that the algorithm names, of an average as `kernels.pool` recognizes it; else none."""
    if not constants:
        return {}
    multiplier, shift, offset = (
        np.array(constants[name].item(), np.int64) for name in ("multiplier", "shift", "offset")
    )
    if by_place:
        counts = np.multiply.outer(*map(np.array, sizes_inside(geometry)))
        offset = counts * (offset // (geometry.kernel[0] * geometry.kernel[1]))
        scales_of = [reciprocal(int(count)) for count in counts.ravel()]
        multiplier, shift = (np.reshape(each, counts.shape) for each in zip(*scales_of, strict=True))
    multiplier, shift = normalized(multiplier, shift)
    zero = np.array(constants["zero_point"].item(), np.int32)
    return {"multiplier": multiplier, "shift": shift, "offset": offset.astype(np.int32), "zero": zero}


def _behind(suffix: str, taken: set[str]) -> str:
    """How the names of loops in the second part of a loop end that is cut, as `cut` names them."""
    suffix += "_t"
    while suffix in taken:
        suffix += "_t"
    taken.add(suffix)
    return suffix


def _whole(taps: int, stride: int, before: int, extent: int) -> tuple[int, int]:
    """The first result along an axis whose window lies inside of the image, and the one behind the last."""
    return -(-before // stride), (extent - taps + before) // stride + 1


def reciprocal(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The scale that divides by a count: `reciprocal_scale` of TOSA 1.0, AVG_POOL2D."""
    k = (count - 1).bit_length()
    return np.array((((1 << 30) + 1) << k) // count), np.array(30 + k)


def sizes_inside(geometry: Geometry) -> list[list[int]]:
    """The rows and the columns of each window that lie inside of the image, by row and by column of the result."""
    found = []
    for axis, (count, extent) in enumerate(((geometry.rows, geometry.height), (geometry.columns, geometry.width))):
        starts = [at * geometry.stride[axis] - geometry.pad[2 * axis] for at in range(count)]
        found.append([min(at + geometry.kernel[axis], extent) - max(at, 0) for at in starts])
    return found
