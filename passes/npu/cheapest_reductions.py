"""Each extremum of a row of channels in the form that is cheapest on the NPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, to_cheapest
from tosaic.passes.transposed_rows import transposed_rows
from tosaic.support.attributes import int_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, rebuild, rescale, reshape, sliced, tensor, transpose

_LEAST, _FULL = 7, 16
"""Channels of the pixels that a row becomes; Ethos-U pools so many at once."""
_TRIED = 2
_COMPARING = {"tosa.reduce_max": "maximum", "tosa.reduce_min": "minimum"}


@register
@dataclass(frozen=True)
class CheapestReductions(ModulePass):
    """Write each REDUCE_MAX and REDUCE_MIN along the last axis in the form that costs the NPU of `target` the fewest
    cycles; without one, leave them.

    Ethos-U pools a row of channels one element at a time, and pixels sixteen channels at a time: a long row is pixels
    first, whose extremum is a short row. So no long row needs a transpose. Or the two halves of a row are compared, and
    the halves of what that gives, which an Ethos-U85 does four elements at a time.
    """

    name: ClassVar[str] = "cheapest-reductions"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.reduce_max", "tosa.reduce_min")


def _forms(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
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


def _by_halves(op: ir.Operation, x: ir.Value) -> ir.Value:
    """The extremum of the two halves of each row, and so on while they are even."""
    *rows, row = shape_of(x)
    kind, name = element_type(x), _COMPARING[op.name]
    while row % 2 == 0:
        row //= 2
        halves = [sliced(x, (*(0 for _ in rows), at), (*rows, row)) for at in (0, row)]
        wide = [rescale(each, "i32", [1 << 30], [30]) for each in halves]
        x = rescale(emit(name, wide, (*rows, row), "i32"), kind, [1 << 30], [30])
    if row > 1:
        count = math.prod(rows)
        x = rebuild(op, [reshape(x, (1, count, 1, row))], tensor((1, count, 1, 1), kind), axis=3)
    return reshape(x, shape_of(op.results[0]))
