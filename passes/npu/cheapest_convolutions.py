"""Each convolution in the form that is cheapest on the NPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, as_image, copied, is_pointwise, to_cheapest
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, transpose


@register
@dataclass(frozen=True)
class CheapestConvolutions(ModulePass):
    """Write each CONV2D in the form that costs the NPU of `target` the fewest cycles; without one, leave them.

    A 1x1 kernel takes its pixels in one row or one column as well; one as large as its stride reads each pixel once,
    so that its blocks may be channels of a 1x1 kernel.
    """

    name: ClassVar[str] = "cheapest-convolutions"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _with_forms, "tosa.conv2d")


def _with_forms(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    return [op], list(_forms(op))


def _forms(op: ir.Operation) -> Iterator[Form]:
    """Other ways to convolve by constant weights without padding."""
    weights = constant_value(op.operands[1])
    _, height, width, _ = shape_of(op.operands[0])
    if weights is None or any(ints_of(op, "pad")) or str(element_type(op.operands[1])) != "i8":
        return
    kernel = weights.shape[1:3]
    if is_pointwise(op) and 1 in (height, width) and height != width:
        yield partial(as_image, op, (1, width, height))
    apart = kernel == ints_of(op, "stride") and ints_of(op, "dilation") == (1, 1)
    if max(kernel) > 1 and apart and height % kernel[0] == width % kernel[1] == 0:
        yield partial(_of_blocks, op)


def _of_blocks(op: ir.Operation, x: ir.Value) -> ir.Value:
    """A 1x1 kernel on blocks, each one pixel."""
    batch, height, width, depth = shape_of(x)
    weights = constant_value(op.operands[1])
    assert weights is not None
    outputs, tall, wide, _ = weights.shape
    rows = reshape(x, (batch * height // tall, tall, width // wide, wide * depth))
    blocks = reshape(transpose(rows, (0, 2, 1, 3)), (batch, height // tall, width // wide, tall * wide * depth))
    kernel = constant(np.reshape(weights, (outputs, 1, 1, math.prod(weights.shape[1:]))))
    return rebuild(op, [blocks, kernel, *copied(list(op.operands)[2:])], op.results[0].type, stride=(1, 1))
