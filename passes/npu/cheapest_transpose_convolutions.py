"""Each TRANSPOSE_CONV2D in the form that is cheapest on the NPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, copied, repeated, rescaled, to_cheapest
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape, transpose
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class CheapestTransposeConvolutions(ModulePass):
    """Write each TRANSPOSE_CONV2D, with its RESCALE, in the form that costs the NPU of `target` the fewest cycles;
    without one, leave them.

    Where the kernel is as large as the stride, every input pixel makes pixels of its own. One form is a 1x1 kernel,
    whose channels then move to rows and columns. The other has one kernel for each row of the result that an input row
    makes.
    """

    name: ClassVar[str] = "cheapest-transpose-convolutions"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.rescale")


def _forms(rescale: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    op = producer(rescale.operands[0], "tosa.transpose_conv2d")
    if op is None or len(users(op.results[0])) > 1:
        return [rescale], []
    weights = constant_value(op.operands[1])
    apart = weights is not None and weights.shape[1:3] == ints_of(op, "stride") and not any(ints_of(op, "out_pad"))
    if not apart or str(element_type(op.operands[1])) != "i8":
        return [rescale], []
    return [op, rescale], [partial(_by_pixels, op, rescale), partial(_by_rows, op, rescale)]


def _by_pixels(op: ir.Operation, rescale: ir.Operation, x: ir.Value) -> ir.Value:
    batch, height, width, _ = shape_of(x)
    outputs, tall, wide, _ = shape_of(op.operands[1])
    made = _convolved(op, rescale, x, [(row, column) for row in range(tall) for column in range(wide)])
    parts = reshape(made, (batch * height, width, tall, wide * outputs))
    return reshape(transpose(parts, (0, 2, 1, 3)), shape_of(op.results[0]))


def _by_rows(op: ir.Operation, rescale: ir.Operation, x: ir.Value) -> ir.Value:
    batch, height, width, _ = shape_of(x)
    outputs, tall, wide, _ = shape_of(op.operands[1])
    made = [_convolved(op, rescale, x, [(row, column) for column in range(wide)]) for row in range(tall)]
    rows = [reshape(one, (batch * height, 1, width, wide * outputs)) for one in made]
    joined = (batch * height, tall, width, wide * outputs)
    return reshape(emit("concat", rows, joined, element_type(rows[0]), axis=1), shape_of(op.results[0]))


def _convolved(op: ir.Operation, rescale: ir.Operation, x: ir.Value, taps: list[tuple[int, int]]) -> ir.Value:
    """A 1x1 convolution, rescaled, whose channels are those of each tap in turn."""
    _, weights, bias, *zero_points = op.operands
    values = constant_value(weights)
    assert values is not None
    kernel = np.concatenate([values[:, row, column] for row, column in taps])[:, None, None]
    image = [*shape_of(x)[:-1], len(kernel)]
    operands = [x, constant(kernel), repeated(bias, len(taps)), *copied(zero_points)]
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": op.attributes["acc_type"]}
    sums = emit("conv2d", operands, image, element_type(op.results[0]), **window)
    return rescaled(rescale, sums, len(taps))
