"""Ops of fewer dimensions take four, as the images between them have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.reshapes import merge_reshapes, reshape_of_constant
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import int_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, tensor
from tosaic.support.tosa_ops import POINTWISE, REDUCING, data_operands
from tosaic.support.values import producer

_IMAGE = 4


@register
@dataclass(frozen=True)
class FourDimensions(ModulePass):
    """Put dimensions of size 1 before those of pointwise ops and reductions that have less than four.

    What convolutions and they make for each other then needs no reshape, for which Vela copies what several ops read.
    """

    name: ClassVar[str] = "four-dimensions"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [in_four_dimensions, merge_reshapes, reshape_of_constant])


@pattern(*sorted(POINTWISE | REDUCING))
def in_four_dimensions(op: ir.Operation) -> Replacement:
    """`op(x)` -> `reshape(op(reshape(x)))`, but where MATMUL makes `x`: they are one kernel."""
    shape = shape_of(op.results[0])
    if not 0 < len(shape) < _IMAGE or producer(op.operands[0], "tosa.matmul"):
        return None
    before = (1,) * (_IMAGE - len(shape))
    data = [reshape(x, (*before, *shape_of(x))) for x in data_operands(op)]
    others = list(op.operands)[len(data) :]
    axis = {"axis": int_of(op, "axis") + len(before)} if op.name in REDUCING else {}
    made = rebuild(op, [*data, *others], tensor((*before, *shape), element_type(op.results[0])), **axis)
    return reshape(made, shape)
