"""A kernel function as a stage of a stream: which rows of what it reads make a row of its result, and the same function
on a strip of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tosaic.backends.cortex_m.streams.row_map import ROWS, RowMap, cut_resize, dims_of, resized_rows
from tosaic.backends.cortex_m.streams.upright import make_upright
from tosaic.support.attributes import ints_of
from tosaic.support.functions import body_of, computing_ops, returned, retype, standalone
from tosaic.support.mlir import (
    bare_bytecode,
    constant_shape,
    constant_value,
    element_type,
    functions,
    ir,
    numpy_dtype,
    parse,
    shape_of,
)
from tosaic.support.tosa_ops import CONSTANT, POINTWISE, data_operands
from tosaic.support.values import is_argument, producer

WINDOWS = {"tosa.conv2d": 3, "tosa.depthwise_conv2d": 3, "tosa.max_pool2d": None, "tosa.avg_pool2d": None}
"""Ops with a window, and the operand that says what stands around the image; a pool may have no rows around it."""
_TO_CHANNELS_LAST = (0, 2, 3, 1)
EDGE = -1
"""Rows around an image are those at its edges."""


@dataclass(frozen=True)
class Argument:
    """What a stage reads.

    Args:
        rows: which rows make one of the result; None where every row needs all of it.
        height: rows that it has; `bytes` of one.
        planes: images one behind the other, each of `height` rows; 1 but where channels come first.
        padding: the byte that rows around it are filled with, or `EDGE`.
        pitch, offset: bytes from a row to the next, and before each, where it is part of a longer one; else 0.
    """

    rows: RowMap | None
    height: int
    bytes: int
    planes: int = 1
    padding: int = 0
    pitch: int = 0
    offset: int = 0

    @property
    def step(self) -> int:
        """Bytes from a row to the next."""
        return self.pitch or self.bytes


@dataclass(frozen=True)
class Stage:
    """A kernel function that makes its result row by row.

    Args:
        module: its bytecode; empty where a row of the result is a row of the one argument.
        arguments: in order.
        height: rows of the result; `bytes` of one.
        across: rows are groups of channels, and so each has weights of its own.
        pitch, offset: as an argument's.
    """

    module: bytes
    arguments: tuple[Argument, ...]
    height: int
    bytes: int
    across: bool = False
    pitch: int = 0
    offset: int = 0

    @property
    def together(self) -> int:
        """Rows of the result that are made together."""
        return max((argument.rows.up for argument in self.arguments if argument.rows), default=1)

    @property
    def step(self) -> int:
        """Bytes from a row to the next."""
        return self.pitch or self.bytes


def stage_of(function: ir.Operation) -> Stage | None:
    """The stage that a `func.func` of tosa ops is; None where a row of its result needs what is no strip of rows.

    Args:
        function: one result (1, H, W, C) of more than one row but for a slice, or a sequence, of ops that keep rows
            apart. Those are windows, pointwise ops, concatenations of channels, and a transpose of channels to the end.
            Resizing is one where rows repeat as they are made, and a transposed convolution where its kernels do not
            meet.
    """
    module = standalone(function)
    (function,) = functions(module).values()
    make_upright(function)
    rows = _rows(function)
    if rows is None:
        return None
    (result,) = returned(function)
    paddings = _paddings(function)
    arguments = tuple(_argument(a, rows.get(a), paddings.get(a, 0)) for a in body_of(function).arguments)
    _, height, width, channels = shape_of(result)
    code = b"" if _takes_rows(function) else bare_bytecode(module)
    return Stage(code, arguments, height, width * channels * _bytes(result))


def _takes_rows(function: ir.Operation) -> bool:
    """Whether a function does no more than leave rows out."""
    ops = computing_ops(function)
    if [op.name for op in ops] != ["tosa.slice"]:
        return False
    taken, whole = shape_of(ops[0].results[0]), shape_of(ops[0].operands[0])
    return taken[ROWS + 1 :] == whole[ROWS + 1 :]


def strip(stage: Stage, count: int) -> bytes:
    """The stage's module on the rows that `count` rows of the result are made of, none of it padding."""
    module = parse(stage.module)
    (function,) = functions(module).values()
    rows = _rows(function)
    assert rows is not None
    with function.context, function.location:
        for value, needed in rows.items():
            axis = 2 if _is_planar(value) else ROWS
            extents = list(shape_of(value))
            extents[axis] = needed.count(count)
            value.set_type(ir.RankedTensorType.get(extents, element_type(value)))
        for op in computing_ops(function):
            if op.name in WINDOWS:
                _, _, left, right = ints_of(op, "pad")
                op.attributes["pad"] = ir.DenseI64ArrayAttr.get([0, 0, left, right])
            if op.name == "tosa.slice":
                _slice_rows(op, count)
            if op.name == "tosa.resize":
                cut_resize(op, ROWS, 0, -resized_rows(op).before, count)
        retype(function)
    return bare_bytecode(module)


def _rows(function: ir.Operation) -> dict[ir.Value, RowMap] | None:
    """For each value that is made row by row the rows behind a row of the result; None where something is not."""
    results = returned(function)
    if len(results) != 1 or len(shape_of(results[0])) != 4:
        return None
    batch, height, *_ = shape_of(results[0])
    if batch != 1 or (height == 1 and not _takes_rows(function)) or producer(results[0], *CONSTANT) is not None:
        return None
    found = {results[0]: RowMap()}
    for op in reversed(computing_ops(function)):
        (made,) = op.results
        if made not in found:
            return None
        needed = _needed(op, found[made])
        if needed is None:
            return None
        for value, rows in needed.items():
            if producer(value, *CONSTANT) is not None or found.setdefault(value, rows) != rows:
                return None
    return found


def _needed(op: ir.Operation, rows: RowMap) -> dict[ir.Value, RowMap] | None:
    """The rows of each operand behind `rows` of the op's result; an operand without is read whole."""
    image = op.operands[0]
    if op.name in POINTWISE:
        height = shape_of(op.results[0])[ROWS]
        operands = [o for o in data_operands(op) if len(shape_of(o)) == 4 and shape_of(o)[ROWS] == height]
        whole = [o for o in data_operands(op) if o not in operands]
        if all(is_argument(o) or producer(o, *CONSTANT) is not None for o in whole):
            return dict.fromkeys(operands, rows)
        return None
    if rows != RowMap():
        return None
    if op.name in WINDOWS and is_argument(image):
        top, bottom, *_ = ints_of(op, "pad")
        if (top or bottom) and WINDOWS[op.name] is None:
            return None
        return {image: RowMap(ints_of(op, "stride")[0], top, span_of(op, 0))}
    if op.name == "tosa.concat" and int(ir.IntegerAttr(op.attributes["axis"]).value) == 3:
        return dict.fromkeys(op.operands, rows)
    if op.name == "tosa.resize" and is_argument(image):
        resized = resized_rows(op)
        return None if shape_of(op.results[0])[ROWS] % resized.up else {image: resized}
    if op.name == "tosa.transpose_conv2d" and is_argument(image):
        tall, stride, out_pad = shape_of(op.operands[1])[1], ints_of(op, "stride")[0], ints_of(op, "out_pad")
        return {image: RowMap(up=tall)} if tall == stride and not any(out_pad[:2]) else None
    if op.name == "tosa.slice" and is_argument(image):
        return {image: RowMap(before=-dims_of(op.operands[1])[ROWS])}
    if op.name == "tosa.transpose" and ints_of(op, "perms") == _TO_CHANNELS_LAST and is_argument(image):
        return {image: rows}
    return None


def span_of(op: ir.Operation, axis: int) -> int:
    """Rows, axis 0, or columns, axis 1, from the first to the last that a window covers."""
    if "kernel" in op.attributes:
        return ints_of(op, "kernel")[axis]
    shape = shape_of(op.operands[1])
    extent = shape[axis] if op.name == "tosa.depthwise_conv2d" else shape[1 + axis]
    return (extent - 1) * ints_of(op, "dilation")[axis] + 1


def _slice_rows(op: ir.Operation, count: int) -> None:
    """Let a slice, whose operand begins with the first row that it takes, take `count` of them."""
    with ir.InsertionPoint(op):
        for number, rows in ((1, 0), (2, count)):
            dims = dims_of(op.operands[number])
            dims[ROWS] = rows
            op.operands[number] = constant_shape(dims)


def _paddings(function: ir.Operation) -> dict[ir.Value, int]:
    """By argument of a window, or of a RESIZE, what stands around it."""
    found = {}
    for op in computing_ops(function):
        if op.name == "tosa.resize":
            found[op.operands[0]] = EDGE
        number = WINDOWS.get(op.name)
        if number is not None:
            value = constant_value(op.operands[number])
            found[op.operands[0]] = 0 if value is None or _bytes(op.operands[0]) > 1 else int(value.item()) & 0xFF
    return found


def _argument(value: ir.Value, rows: RowMap | None, padding: int) -> Argument:
    shape = shape_of(value)
    if rows is None:
        return Argument(None, 1, math.prod(shape) * _bytes(value))
    if _is_planar(value):
        _, planes, height, width = shape
        return Argument(rows, height, width * _bytes(value), planes, padding)
    _, height, width, channels = shape
    return Argument(rows, height, width * channels * _bytes(value), 1, padding)


def _is_planar(value: ir.Value) -> bool:
    """Whether the value's channels come first: it is what a transpose puts last."""
    return any(use.owner.operation.name == "tosa.transpose" for use in value.uses)


def _bytes(value: ir.Value) -> int:
    return numpy_dtype(element_type(value)).itemsize
