"""A window of a dilated convolution that stands alone reads what it needs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, rebuild, sliced


@register
@dataclass(frozen=True)
class LoneWindows(ModulePass):
    """Put the rows or columns side by side that the only window along an axis reads, as that of a streamed layer: it is
    one row of a matrix product then, whose weights are read one behind the other."""

    name: ClassVar[str] = "lone-windows"
    phase: ClassVar[str] = "cpu"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [brought_together])


@pattern("tosa.conv2d")
def brought_together(op: ir.Operation) -> Replacement:
    """`conv2d(x)` with taps that lie apart -> `conv2d(concat(slice(x), ...))` without dilation."""
    x, weights, *rest = op.operands
    dilation, stride, pad = list(ints_of(op, "dilation")), list(ints_of(op, "stride")), ints_of(op, "pad")
    taps, results = shape_of(weights), shape_of(op.results[0])
    alone = [axis for axis in (1, 2) if results[axis] == 1 < taps[axis] and not any(pad[2 * axis - 2 : 2 * axis])]
    lone = [axis for axis in alone if dilation[axis - 1] > 1]
    if not lone:
        return None
    for axis in lone:
        size, shape = list(shape_of(x)), list(shape_of(x))
        starts = [[tap * dilation[axis - 1] * (at == axis) for at in range(4)] for tap in range(taps[axis])]
        size[axis], shape[axis], dilation[axis - 1], stride[axis - 1] = 1, taps[axis], 1, 1
        x = emit("concat", [sliced(x, start, size) for start in starts], shape, element_type(x), axis=axis)
    return rebuild(op, [x, weights, *rest], op.results[0].type, stride=stride, dilation=dilation)
