"""TRANSPOSE, SLICE, PAD, CONCAT and TILE: boxes that move.

Every one of these ops fills the result with boxes: a box of an input under other strides, or a box of one value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.movement_sketch import InterleavedMovement, PlainMovement, VectorMovement
from tosaic.backends.cortex_m.kernels.mve_match import number, numbers, workload
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.movement import CopyAxis, CopyBox
from tosaic.support.attributes import int_of, ints_of
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.tosa_ops import data_operands
from tosaic.support.values import producer

_OPS = ("tosa.transpose", "tosa.slice", "tosa.pad", "tosa.concat", "tosa.tile")
ELEMENTS = {1: "i8", 2: "i16", 4: "i32"}
"""Of elements, by their bytes."""


@FAMILIES.register
class Movement(ProgramFamily):
    """One op that only moves elements of one, two or four bytes; a CONCAT may have SLICEs for parts."""

    name = "movement"

    def match(self, function: ir.Operation) -> Workload | None:
        ops, arguments = computing_ops(function), list(body_of(function).arguments)
        *slices, op = ops
        if op.name not in _OPS or returned(function) != list(op.results):
            return None
        if any(op.name != "tosa.concat" or cut.name != "tosa.slice" for cut in slices):
            return None
        width = numpy_dtype(element_type(op.results[0])).itemsize
        boxes = _boxes(op, arguments)
        if width not in ELEMENTS or not boxes:
            return None
        attributes: dict[str, object] = {
            "dtype": ELEMENTS[width],
            "boxes": tuple(boxes),
            "sizes": tuple(math.prod(shape_of(argument)) for argument in arguments),
            "size": math.prod(shape_of(op.results[0])),
        }
        fill = constant_value(op.operands[2]) if op.name == "tosa.pad" else None
        if fill is not None:
            attributes["fill"] = int(fill.reshape(()).view(f"i{width}"))
        return workload(self.name, attributes, {})

    def sketch(self, workload: Workload) -> Sketched | None:
        return PlainMovement(*_what(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        what = _what(workload)
        return {"vectors": VectorMovement(*what), "interleaved": InterleavedMovement(*what)}


def _what(workload: Workload) -> tuple[tuple[CopyBox, ...], tuple[int, ...], int, str, int | None]:
    """The boxes, elements of the inputs and of the result, the type of an element, and what fills boxes."""
    boxes = workload.attributes["boxes"]
    assert isinstance(boxes, tuple)
    fill = number(workload, "fill") if "fill" in workload.attributes else None
    return boxes, numbers(workload, "sizes"), number(workload, "size"), str(workload.attributes["dtype"]), fill


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _boxes(op: ir.Operation, arguments: Sequence[ir.Value]) -> list[CopyBox]:
    """The boxes of an op; none where an operand that should be a constant or an argument is not."""
    if op.name == "tosa.concat":
        return _concatenation(op, arguments)
    data = data_operands(op)
    if any(value not in arguments for value in data):
        return []
    shape = shape_of(op.results[0])
    targets = _strides(shape)
    first = arguments.index(data[0])
    extents = shape_of(data[0])
    sources = _strides(extents)
    if op.name == "tosa.transpose":
        axes = [CopyAxis(shape[i], sources[p], targets[i]) for i, p in enumerate(ints_of(op, "perms"))]
        return [CopyBox.of(first, 0, 0, axes)]
    amounts = constant_value(op.operands[1])
    if amounts is None:
        return []
    numbers = [int(n) for n in amounts.reshape(-1)]
    if op.name == "tosa.slice":
        return [CopyBox.of(first, _start(op), 0, list(map(CopyAxis, shape, sources, targets)))]
    if op.name == "tosa.tile":
        repeats = [CopyAxis(n, 0, extent * to) for n, extent, to in zip(numbers, extents, targets, strict=True)]
        return [CopyBox.of(first, 0, 0, [*repeats, *map(CopyAxis, extents, sources, targets)])]
    if constant_value(op.operands[2]) is None:
        return []
    return _padding(first, extents, numbers, shape)


def _concatenation(op: ir.Operation, arguments: Sequence[ir.Value]) -> list[CopyBox]:
    axis, targets = int_of(op, "axis"), _strides(shape_of(op.results[0]))
    boxes, at = [], 0
    for value in data_operands(op):
        cut = producer(value, "tosa.slice")
        source = value if cut is None else cut.operands[0]
        if source not in arguments:
            return []
        axes = list(map(CopyAxis, shape_of(value), _strides(shape_of(source)), targets))
        start = 0 if cut is None else _start(cut)
        box = CopyBox.of(list(arguments).index(source), start, at * targets[axis], axes)
        boxes.append(box.in_steps() if shape_of(source) == shape_of(op.results[0]) else box)
        at += shape_of(value)[axis]
    return boxes


def _start(op: ir.Operation) -> int:
    """The element of what a SLICE reads that it begins at."""
    begin = constant_value(op.operands[1])
    assert begin is not None, "a slice begins at constants"
    return sum(int(n) * stride for n, stride in zip(begin.reshape(-1), _strides(shape_of(op.operands[0])), strict=True))


def _padding(argument: int, extents: Sequence[int], amounts: Sequence[int], shape: Sequence[int]) -> list[CopyBox]:
    """The input in the middle, and what lies before and after it on each axis, the last axis first.

    What lies there is as wide as the axes behind it.
    """
    targets = _strides(shape)
    before, after = amounts[::2], amounts[1::2]
    start = corner = sum(n * stride for n, stride in zip(before, targets, strict=True))
    boxes = [CopyBox.of(argument, 0, start, list(map(CopyAxis, extents, _strides(extents), targets)))]
    for axis, stride in reversed([*enumerate(targets)]):
        corner -= before[axis] * stride
        for thick, place in ((before[axis], 0), (after[axis], before[axis] + extents[axis])):
            if thick:
                widths = [*extents[:axis], thick, *shape[axis + 1 :]]
                axes = [CopyAxis(width, 0, to) for width, to in zip(widths, targets, strict=True)]
                boxes.append(CopyBox.of(None, 0, corner + place * stride, axes))
    return boxes
