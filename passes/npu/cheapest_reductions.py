"""Each extremum of a row of channels in the form that is cheapest on the NPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import RANGES, Rescale, rescale_of
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, copied, of_two, to_cheapest
from tosaic.passes.transposed_rows import transposed_rows
from tosaic.support.attributes import int_of
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import mul, rebuild, rescale, reshape, sliced, tensor, transpose
from tosaic.support.values import producer

_LEAST, _FULL = 7, 16
"""Channels of the pixels that a row becomes; Ethos-U pools so many at once."""
_TRIED = 2
_MOST_SCALED = 1 << 29
"""What a RESCALE by a power of two gives is smaller (TOSA 1.0, apply_scale_32)."""
_OF_TWO = {"tosa.reduce_max": "maximum", "tosa.reduce_min": "minimum", "tosa.reduce_sum": "add"}


@register
@dataclass(frozen=True)
class CheapestReductions(ModulePass):
    """Write each REDUCE_MAX, REDUCE_MIN and REDUCE_SUM along the last axis in the form that costs the NPU of `target`
    the fewest cycles; without one, leave them.

    Ethos-U pools a row of channels one element at a time, and pixels sixteen channels at a time: a long row is pixels
    first, whose extremum is a short row. So no long row needs a transpose. Or the two halves of a row are compared or
    added, and the halves of what that gives, which an Ethos-U85 does four elements at a time. Squares of an int8 that
    was scaled by a power of two are those of the int8, of which an Ethos-U85 takes the zero point as it reads it, and
    their sum is scaled.
    """

    name: ClassVar[str] = "cheapest-reductions"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _extrema, "tosa.reduce_max", "tosa.reduce_min")
            to_cheapest(module, self.target, _sums, "tosa.reduce_sum")


def _extrema(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    x, axis = op.operands[0], int_of(op, "axis")
    turn = transposed_rows(x) if axis == len(shape_of(x)) - 2 else ()
    *rows, row = shape_of(turn[0].operands[0] if len(turn) == 1 else x)
    if len(turn) != 1 and axis != len(rows):
        return [op], []
    if row <= _FULL or str(element_type(x)) not in ("i8", "i16"):
        return [op], []
    tried = [channels for channels in range(_FULL, _LEAST - 1, -1) if row % channels == 0][:_TRIED]
    forms: list[Form] = [partial(_by_pixels, op, channels, turned) for channels in tried for turned in (False, True)]
    if row % 2 == 0:
        forms.append(partial(_by_halves, op))
    return [*turn, op], forms


def _by_pixels(op: ir.Operation, channels: int, turned: bool, x: ir.Value) -> ir.Value:
    """The extremum of each channel of a row's pixels, then that of the channels, which may be `turned` into pixels."""
    *rows, row = shape_of(x)
    count, kind = math.prod(rows), element_type(x)
    pixels = reshape(x, (1, count, row // channels, channels))
    short = rebuild(op, [pixels], tensor((1, count, 1, channels), kind), axis=2)
    if turned:
        columns = transpose(reshape(short, (1, 1, count, channels)), (0, 1, 3, 2))
        found = rebuild(op, [columns], tensor((1, 1, 1, count), kind), axis=2)
    else:
        found = rebuild(op, [short], tensor((1, count, 1, 1), kind), axis=3)
    return reshape(found, shape_of(op.results[0]))


@dataclass(frozen=True)
class _Squares:
    """The squares of an int8 without its zero point, times 2**power; `ops` compute them from it."""

    zero: int
    power: int
    ops: tuple[ir.Operation, ...]

    def most(self, count: int) -> int:
        """The sum of so many is no larger."""
        return (count * _most("i8", self.zero) ** 2) << self.power


def _squares(value: ir.Value) -> _Squares | None:
    """What `value` is of an int8 that was scaled to int16; None where that is not exact."""
    after, product = producer(value, "tosa.rescale"), producer(value, "tosa.mul")
    outer = rescale_of(after) if after else None
    if after and outer and outer.by_power_of_two and not outer.input_zp and not outer.output_zp:
        product = producer(after.operands[0], "tosa.mul")
    if product is None or product.operands[0] != product.operands[1]:
        return None
    before = producer(product.operands[0], "tosa.rescale")
    inner = rescale_of(before) if before else None
    if before is None or inner is None or (inner.source, inner.target) != ("i8", "i16") or inner.output_zp:
        return None
    power = 2 * _power(inner) + (_power(outer) if outer else 0)
    fits = inner.by_power_of_two and _power(inner) >= 0 and _largest(inner) <= RANGES["i16"][1]
    ops = (before, product, *([after] if after else []))
    return _Squares(inner.input_zp, power, ops) if fits and 0 <= power <= 28 else None


def _power(rescale: Rescale) -> int:
    """Of two, by which a RESCALE multiplies."""
    return rescale.multiplier.bit_length() - 1 - rescale.shift


def _largest(rescale: Rescale) -> int:
    """The largest magnitude that a RESCALE gives."""
    return (_most(rescale.source, rescale.input_zp) * rescale.multiplier >> rescale.shift) + 1 + abs(rescale.output_zp)


def _most(kind: str, zero: int) -> int:
    return max(abs(end - zero) for end in RANGES[kind])


def _sums(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    """Partial sums of what has one sign, or is small, are no larger than an int32."""
    x, axis = op.operands[0], int_of(op, "axis")
    row = shape_of(x)[axis]
    if axis != len(shape_of(x)) - 1 or row % 2 or str(element_type(x)) != "i32":
        return [op], []
    if squares := _squares(x):
        return [*squares.ops, op], [partial(_of_squares, op, squares)] if squares.most(row) <= RANGES["i32"][1] else []
    scaling = producer(x, "tosa.rescale")
    narrow = rescale_of(scaling) if scaling else None
    if scaling is None or narrow is None or _largest(narrow) * row > RANGES["i32"][1]:
        return [op], []
    return [scaling, op], [partial(_of_scaled, op, scaling)]


def _of_scaled(op: ir.Operation, scaling: ir.Operation, x: ir.Value) -> ir.Value:
    """The sum of what a RESCALE makes of `x`."""
    scaled = rebuild(scaling, [x, *copied(list(scaling.operands)[1:])], scaling.results[0].type)
    return _by_halves(op, scaled)


def _of_squares(op: ir.Operation, squares: _Squares, x: ir.Value) -> ir.Value:
    """The sum of squares of an int8 without its zero point, scaled."""
    wide = rescale(x, "i32", [1 << 30], [30], input_zp=squares.zero)
    total = _by_halves(op, mul(wide, wide, "i32"))
    if squares.most(shape_of(op.operands[0])[-1]) < _MOST_SCALED:
        return rescale(total, "i32", [1 << 30], [30 - squares.power])
    return mul(total, constant(np.full([1] * len(shape_of(total)), 1 << squares.power, np.int32)), "i32")


def _by_halves(op: ir.Operation, x: ir.Value) -> ir.Value:
    """What the op makes of the two halves of each row, and so on while they are even."""
    *rows, row = shape_of(x)
    kind, name = element_type(x), _OF_TWO[op.name]
    while row % 2 == 0:
        row //= 2
        x = of_two(name, *(sliced(x, (*(0 for _ in rows), at), (*rows, row)) for at in (0, row)))
    if row > 1:
        count = math.prod(rows)
        x = rebuild(op, [reshape(x, (1, count, 1, row))], tensor((1, count, 1, 1), kind), axis=3)
    return reshape(x, shape_of(op.results[0]))
