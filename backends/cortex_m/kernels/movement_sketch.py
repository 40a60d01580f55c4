"""Data movement with the numbers that its schedules leave open."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.program.copied_rows import TOGETHER
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.movement import FILL, CopyAxis, CopyBox, loops_of_box, movement
from tosaic.backends.cortex_m.program.overlap import overlaps
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.interleaving import InterleavedPlanes, interleaved
from tosaic.backends.cortex_m.program.sketches.movement import MovedBox, alike, moved, written_out
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_WALKS = ("scatter", "gather")
_WRITTEN_OUT = (8, 16, 4, 1)
_STRIPS = (4096, 1024, 256, 64)
_UNROLLED = (1, 2, 4)
"""Those first that are compared first: where cycles are near, less code is preferred."""
_FEW = 4
"""Planes whose vectors are interleaved in registers."""


@dataclass(frozen=True)
class _Movement:
    """Boxes that move.

    Args:
        sizes: elements of the inputs.
        size: elements of the result.
        fill: what boxes are filled with, if any are.
    """

    boxes: tuple[CopyBox, ...]
    sizes: tuple[int, ...]
    size: int
    dtype: str
    fill: int | None

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        return {}

    def program(self) -> Program:
        return movement(self.boxes, self.sizes, self.size, self.dtype, self.fill)

    def placed(self) -> Iterator[str]:
        """The step that puts what fills boxes into a register."""
        if self.fill is not None:
            yield f"place({FILL}, r)"


class PlainMovement(_Movement):
    """On cores without vectors: loops of C, which the compiler knows well."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `unroll`, elements of a row in an iteration; where there are several boxes,
        whether their `loops` are one where they are alike."""
        found: dict[str, tuple[Choice, ...]] = {"unroll": _WRITTEN_OUT}
        return found | ({"loops": ("together", "apart")} if len(self.boxes) > 1 else {})

    def steps(self, knobs: Knobs) -> Iterator[str]:
        pairs = [*alike(self.boxes)] if knobs.get("loops") == "together" else []
        yield from self.placed()
        yield from (f"merge({first}, {second})" for first, second in pairs)
        yield from self._rows({name for pair in pairs for name in pair}, int(knobs["unroll"]))

    @cached_property
    def _may_lie_over_inputs(self) -> bool:
        return bool(overlaps(self.program()))

    def _rows(self, merged: Container[str], count: int) -> Iterator[str]:
        """Rows of so many elements written out, and of longer ones what the compiler does not know as copies. Those
        that may lie over their input are copied by words."""
        rows = [(loops_of_box(n, box)[-1], box) for n, box in enumerate(self.boxes) if box.axes]
        chosen = [(name, box.axes[-1].extent) for name, box in rows if count >= box.axes[-1].extent or not box.run]
        chosen = [(name, extent) for name, extent in chosen if count > 1 and name not in merged]
        if count > 1 and not chosen:
            raise RefusedError(f"there are no rows of {count}")
        for name, extent in chosen:
            yield from written_out(name, extent, count)
        if not self._may_lie_over_inputs:
            return
        for name, box in rows:
            whole = box.run and box.argument is not None and box.axes[-1].extent * BYTES[self.dtype] >= TOGETHER
            if whole and (name, box.axes[-1].extent) not in chosen:
                yield f"words({name})"

    def cost(self, knobs: Knobs) -> float:
        return _WRITTEN_OUT.index(int(knobs["unroll"])) / 4 + (knobs.get("loops") == "apart")


class VectorMovement(_Movement):
    """On cores with vectors; see `sketches.movement`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        return knobs_of_boxes(self.boxes)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        yield from self.placed()
        for number, box in enumerate(self.boxes):
            if box.touches_neighbors:
                source = FILL if box.argument is None else f"a{box.argument}"
                yield from moved(moved_box(number, box, source, self.dtype, knobs))

    def cost(self, knobs: Knobs) -> float:
        return cost_of_boxes(knobs)


class InterleavedMovement(_Movement):
    """Few planes that become channels, on cores with vectors; see `sketches.interleaving`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        return {}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        box = self.boxes[0]
        planes = self._planes(box)
        if planes is None or len(self.boxes) > 1:
            raise RefusedError("it is no box of few planes that become channels")
        yield from interleaved(planes)
        iterations = planes.extent // planes.lanes
        yield f"hardware_loop({planes.along})" if iterations > 1 else f"block({planes.along})"

    def cost(self, knobs: Knobs) -> float:
        return 0

    def _planes(self, box: CopyBox) -> InterleavedPlanes | None:
        """A box as planes, where the elements of a plane fill vectors, and the result has nothing beside channels."""
        if len(box.axes) < 2 or box.argument is None:
            return None
        along, across = box.axes[-2:]
        if along.source != 1 or across.result != 1 or along.result != across.extent:
            return None
        over, planes = loops_of_box(0, box)[-2:]
        found = InterleavedPlanes(over, planes, along.extent, across.extent, self.dtype)
        fills = found.extent % found.lanes == 0 and len(found.runs) > 1
        return found if fills and found.planes <= _FEW else None


def knobs_of_boxes(boxes: Sequence[CopyBox]) -> dict[str, tuple[Choice, ...]]:
    """The numbers that are open: `unroll`, vectors in an iteration of a loop over many, and `ahead`, loads that run
    an iteration ahead.

    Where a box has no neighbors on both sides, `walk`: `scatter` reads vectors, `gather` writes them; and `strip`,
    elements along these vectors that all other loops of the box move before the next ones, 0 for all of them.
    """
    found: dict[str, tuple[Choice, ...]] = {"unroll": _UNROLLED, "ahead": (1, 2, 0)}
    crossing = [box for box in boxes if not box.run]
    if crossing:
        strips = (n for n in _STRIPS if any(n < axis.extent for box in crossing for axis in box.axes))
        found |= {"walk": _WALKS, "strip": (0, *strips)}
    return found


def cost_of_boxes(knobs: Knobs) -> float:
    """What numbers of boxes cost beside others."""
    gathers, strips = knobs.get("walk") == "gather", int(knobs.get("strip", 0)) > 0
    beside = _UNROLLED.index(int(knobs["unroll"])) + abs(int(knobs["ahead"]) - 1)
    return gathers / 8 + strips + beside / 4


def moved_box(number: int, box: CopyBox, source: str, dtype: str, knobs: Knobs) -> MovedBox:
    """A box on its way from a buffer."""
    names, size, crosses = loops_of_box(number, box), BYTES[dtype], not box.run
    read, written = (next((axis for axis in box.axes if of(axis) == 1), None) for of in (_source, _result))
    scatters = crosses and read is not None and (written is None or knobs["walk"] == "scatter")
    along = read if scatters else written
    assert along is not None, "an op reads or writes neighbors"
    filled = box.argument is None or along.source == 0
    apart = 1 if filled or not crosses else along.result if scatters else along.source
    width = next(n for n in (1, 2, 4) if n >= size and (n == 4 or (16 // n - 1) * apart * size < 1 << 8 * n))
    strip = int(knobs["strip"]) if crosses else 0
    return MovedBox(
        number,
        tuple(names),
        tuple(axis.extent for axis in box.axes),
        names[box.axes.index(along)],
        "out" if filled or (crosses and not scatters) else source,
        source if filled else "",
        REGISTERS["q"] // width,
        f"i{8 * width}",
        strip if strip < along.extent else 0,
        int(knobs["unroll"]),
        int(knobs["ahead"]),
    )


def _source(axis: CopyAxis) -> int:
    return axis.source


def _result(axis: CopyAxis) -> int:
    return axis.result
