"""Reductions along the channels become reductions along rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import int_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, tensor, transpose


@register
@dataclass(frozen=True)
class ReduceRows(ModulePass):
    """Put a transpose before each int8 or int16 REDUCE_MAX and REDUCE_MIN along the last axis.

    Ethos-U pools a row of channels one element at a time, and rows of pixels sixteen channels at a time: with the
    transpose it is 4 to 20 times as fast (Vela 5.2.0's estimates).
    """

    name: ClassVar[str] = "reduce-rows"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [along_rows])


@pattern("tosa.reduce_max", "tosa.reduce_min")
def along_rows(op: ir.Operation) -> Replacement:
    """`reduce(x, last)` -> `reshape(reduce(transpose(x), last - 1))`."""
    x = op.operands[0]
    shape, last = shape_of(x), len(shape_of(x)) - 1
    if int_of(op, "axis") != last or str(element_type(x)) not in ("i8", "i16"):
        return None
    if last == 0 or 1 in shape[-2:]:
        return None
    swapped = transpose(x, [*range(last - 1), last, last - 1])
    result = tensor([*shape[:-2], 1, shape[-2]], element_type(x))
    return reshape(rebuild(op, [swapped], result, axis=last - 1), shape_of(op.results[0]))
