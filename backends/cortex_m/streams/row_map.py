"""Which rows of what a stage reads make a row of its result; those of a RESIZE."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tosaic.support.attributes import enum_of
from tosaic.support.mlir import constant_shape, constant_value, ir, shape_of

ROWS = 1
"""The axis of rows of an image with its channels last."""


@dataclass(frozen=True)
class RowMap:
    """Rows `first ... first + count - 1` of a result are made of `stride * (count - 1) + reach` rows of an operand,
    from row `stride * first - before` on; rows before the first and behind the last are those of the padding. Where
    `up` rows are made together, first and count are of so many rows each."""

    stride: int = 1
    before: int = 0
    reach: int = 1
    up: int = 1

    def first(self, row: int) -> int:
        """The first row that `row` is made of, negative in the padding."""
        return self.stride * (row // self.up) - self.before

    def count(self, rows: int) -> int:
        """The rows that `rows` rows are made of."""
        return self.stride * (rows // self.up - 1) + self.reach

    def end(self, rows: int) -> int:
        """The row behind the last that the first `rows` rows are made of."""
        return self.first(0) + self.count(rows)


def resized_rows(op: ir.Operation) -> RowMap:
    """The rows of which a RESIZE makes others: as many together as there are before its weights repeat."""
    numerator, denominator, _ = _resize_scale(op, ROWS)
    common = math.gcd(numerator, denominator)
    up, stride = numerator // common, denominator // common
    first, last = resize_reads(op, ROWS, 0, up - 1)
    return RowMap(stride, -first, last - first + 1, up)


def resize_reads(op: ir.Operation, axis: int, first: int, last: int) -> tuple[int, int]:
    """The first and the last row, or column, of which a RESIZE makes those from `first` to `last` (TOSA 1.0, RESIZE);
    beyond the edges where these are repeated."""
    numerator, denominator, offset = _resize_scale(op, axis)
    low, high = (row * denominator + offset for row in (first, last))
    if enum_of(op, "mode") == "NEAREST_NEIGHBOR":
        return (2 * low + numerator) // (2 * numerator), (2 * high + numerator) // (2 * numerator)
    return low // numerator, high // numerator + 1


def cut_resize(op: ir.Operation, axis: int, made: int, read: int, count: int) -> None:
    """Let a RESIZE, whose operand begins with what was `read` along an axis, make `count` rows or columns from `made`
    on."""
    numerator, denominator, offset = _resize_scale(op, axis)
    moved = offset + made * denominator - read * numerator
    border = (count - 1) * denominator - (shape_of(op.operands[0])[axis] - 1) * numerator + moved
    with ir.InsertionPoint(op):
        for number, value in ((2, moved), (3, border)):
            dims = dims_of(op.operands[number])
            dims[axis - ROWS] = value
            op.operands[number] = constant_shape(dims)


def _resize_scale(op: ir.Operation, axis: int) -> tuple[int, int, int]:
    """Numerator, denominator and offset along an axis: row r is made at (r * denominator + offset) / numerator."""
    scale, offsets = dims_of(op.operands[1]), dims_of(op.operands[2])
    first = 2 * (axis - ROWS)
    return scale[first], scale[first + 1], offsets[axis - ROWS]


def dims_of(value: ir.Value) -> list[int]:
    """The numbers of a shape."""
    numbers = constant_value(value)
    assert numbers is not None
    return [int(number) for number in numbers]
