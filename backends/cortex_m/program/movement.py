"""Data movement as programs: boxes of the result that are copied from an input, or filled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer
from tosaic.support.kernels import FEWEST_IN_A_PIECE

FILL = "fill"
"""Where that lies which boxes are filled with."""


@dataclass(frozen=True)
class CopyAxis:
    """One loop over a box: how often, and the strides of source and result in elements."""

    extent: int
    source: int
    result: int


@dataclass(frozen=True)
class CopyBox:
    """A part of the result, and where its elements come from.

    Args:
        argument: the input they come from; None fills the box with the op's pad value.
        source: the first element in that input.
        result: the first element in the result.
        axes: the loops, outermost first; none has one iteration, and no two neighbors could be one but `in_steps`.
    """

    argument: int | None
    source: int
    result: int
    axes: tuple[CopyAxis, ...]

    @staticmethod
    def of(argument: int | None, source: int, result: int, axes: Sequence[CopyAxis]) -> CopyBox:
        merged: list[CopyAxis] = []
        for axis in sorted((a for a in axes if a.extent > 1), key=lambda a: (-a.result, -a.source)):
            if merged:
                outer, reach = merged[-1], axis.extent
                if (outer.source, outer.result) == (axis.source * reach, axis.result * reach):
                    merged[-1] = CopyAxis(outer.extent * reach, axis.source, axis.result)
                    continue
            merged.append(axis)
        return CopyBox(argument, source, result, tuple(merged))

    def in_steps(self) -> CopyBox:
        """What moves as one piece towards the beginning, in pieces that are no longer than the way it goes, where such
        fill vectors: so it may move where it lies."""
        way = self.source - self.result
        if len(self.axes) != 1 or not self.run or way <= 0:
            return self
        (axis,), piece = self.axes, math.gcd(self.axes[0].extent, way)
        if piece == axis.extent or piece < FEWEST_IN_A_PIECE:
            return self
        return replace(self, axes=(CopyAxis(axis.extent // piece, piece, piece), CopyAxis(piece, 1, 1)))

    @property
    def run(self) -> bool:
        """Whether neighbors of the result are neighbors of the source, too."""
        return not self.axes or self.argument is None or self.axes[-1].source == self.axes[-1].result == 1

    @property
    def touches_neighbors(self) -> bool:
        """Whether neighbors are read, or written."""
        return any(axis.result == 1 or (axis.source == 1 and self.argument is not None) for axis in self.axes)

    @property
    def elements(self) -> int:
        return math.prod(axis.extent for axis in self.axes)


def movement(boxes: Sequence[CopyBox], sizes: Sequence[int], size: int, dtype: str, fill: int | None) -> Program:
    """The program of boxes that fill a result of so many elements.

    Inputs, of `sizes`, are `a0`, `a1` ...; in `fill` lies what boxes are filled with, if any are. The loops of box 2
    are `b2`, which iterates once, and inside of it `b2a`, `b2b` ..., one for each axis.
    """
    arguments = [Buffer(f"a{i}", dtype, (elements,), "in") for i, elements in enumerate(sizes)]
    arguments.append(Buffer("out", dtype, (size,), "out"))
    parts = []
    for number, box in enumerate(boxes):
        source, result, extents = places_of_box(number, box)
        value = Access(FILL) if box.argument is None else Access(f"a{box.argument}", (source,))
        parts.append(nested(Assign(Access("out", (result,)), value), **extents))
    body = seq(*parts)
    if fill is not None:
        body = Alloc(Buffer(FILL, "i32", (), "scratch"), seq(Assign(Access(FILL), fill), body))
    return Program(tuple(arguments), body)


def places_of_box(number: int, box: CopyBox) -> tuple[Affine, Affine, dict[str, int]]:
    """Where an element of a box is read and written, and the extents of the loops around it, outermost first."""
    source, result, extents = Affine.of(box.source), Affine.of(box.result), {f"b{number}": 1}
    for name, axis in zip(loops_of_box(number, box), box.axes, strict=True):
        source, result = source + Affine.of(name) * axis.source, result + Affine.of(name) * axis.result
        extents[name] = axis.extent
    return source, result, extents


def loops_of_box(number: int, box: CopyBox) -> list[str]:
    """The loops of a box's axes, by name."""
    return [f"b{number}{chr(ord('a') + depth)}" for depth in range(len(box.axes))]
