"""A row that is selected at the place that equals a number is a row written there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, constant_shape, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape
from tosaic.support.values import producer

_WORTH = 1024  # elements for each row that is written


@register
@dataclass(frozen=True)
class SelectsToScatters(ModulePass):
    """`select(0, 1, 2 ... == place, row, x)` -> SCATTER of the row into x at the place, or of the row that is there
    where x has no such place: so only a row moves, where the result may lie over x."""

    name: ClassVar[str] = "selects-to-scatters"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [at_a_place])


@pattern("tosa.select")
def at_a_place(op: ir.Operation) -> Replacement:
    condition, row, x = op.operands
    shape, flags = shape_of(x), shape_of(condition)
    axes = [axis for axis, count in enumerate(flags) if count > 1]
    if shape != shape_of(op.results[0]) or len(axes) != 1:
        return None
    (axis,) = axes
    count, n, width = shape[axis], math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    place = _place(condition)
    if place is None or shape_of(row) != (*shape[:axis], 1, *shape[axis + 1 :]) or count * width < _WORTH:
        return None
    place = reshape(place, (1, 1))
    bounds = (constant(np.full((1, 1), bound, np.int32)) for bound in (0, count - 1))
    at = place
    for name, bound in zip(("maximum", "minimum"), bounds, strict=True):
        at = emit(name, [at, bound], (1, 1), "i32")
    there = reshape(emit("equal", [at, place], (1, 1), "i1"), (1, 1, 1))
    places = at if n == 1 else emit("tile", [at, constant_shape((n, 1))], (n, 1), "i32")
    kind, rows = element_type(x), reshape(x, (n, count, width))
    before = emit("gather", [rows, places], (n, 1, width), kind)
    written = emit("select", [there, reshape(row, (n, 1, width)), before], (n, 1, width), kind)
    return reshape(emit("scatter", [rows, places, written], (n, count, width), kind), shape)


def _place(condition: ir.Value) -> ir.Value | None:
    """The one number that is compared with 0, 1, 2 and so on."""
    while (view := producer(condition, "tosa.reshape")) is not None:
        condition = view.operands[0]
    equal = producer(condition, "tosa.equal")
    for here, place in (equal.operands, reversed(list(equal.operands))) if equal is not None else ():
        numbers = constant_value(here)
        counted = numbers is not None and np.array_equal(numbers.ravel(), np.arange(numbers.size))
        if counted and math.prod(shape_of(place)) == 1 and str(element_type(place)) == "i32":
            return place
    return None
