"""Each linear layer of one pixel in the form that is cheapest on the NPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, copied, is_pointwise, or_least, to_cheapest
from tosaic.support.attributes import bool_of, enum_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, rescale, reshape
from tosaic.support.values import producer, users

_PARTS = (1, 2)
_GAIN = 1 / 32
"""That a form must save, as its commands take flash."""


@register
@dataclass(frozen=True)
class CheapestLayers(ModulePass):
    """Write each 1x1 CONV2D of one pixel, with its RESCALE, in the form that costs the NPU of `target` the fewest
    cycles; without one, leave them.

    In DRAM the ten bytes of an output channel's scale and bias take an Ethos-U85 as long as 80 weights, by Vela's
    estimate. So weights may be the rows of a MATMUL, in one part or two: it has neither, and one MUL scales its sums.
    """

    name: ClassVar[str] = "cheapest-layers"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.rescale", gain=_GAIN)


def _forms(op: ir.Operation) -> tuple[Sequence[ir.Operation], Sequence[Form]]:
    conv = producer(op.operands[0], "tosa.conv2d")
    if conv is None or len(users(conv.results[0])) > 1 or not is_pointwise(conv) or not _is_scaled_alike(op):
        return [op], []
    outputs = shape_of(op.results[0])[-1]
    if math.prod(shape_of(op.results[0])) > outputs or str(element_type(conv.operands[0])) != "i8":
        return [op], []
    return [conv, op], [partial(_by_rows, conv, op, parts) for parts in _PARTS if outputs % parts == 0]


def _is_scaled_alike(op: ir.Operation) -> bool:
    """Whether a RESCALE of int32 rounds once, and its multipliers may have one shift."""
    signed = not bool_of(op, "input_unsigned") and not bool_of(op, "output_unsigned")
    return signed and enum_of(op, "rounding_mode") == "SINGLE_ROUND" and _of_one_shift(op)[0].max() < 2**31


def _of_one_shift(op: ir.Operation) -> tuple[np.ndarray, int]:
    """The multipliers of a RESCALE, int64, with the greatest of its shifts."""
    multiplier, shift = (constant_value(value) for value in list(op.operands)[1:3])
    assert multiplier is not None and shift is not None
    return multiplier.astype(np.int64) << (shift.max() - shift.astype(np.int64)), int(shift.max())


def _by_rows(conv: ir.Operation, op: ir.Operation, parts: int, x: ir.Value) -> ir.Value:
    """The rows of weights by the pixel, which stands there for each of so many parts."""
    _, weights, bias, *zeros = conv.operands
    (outputs, _, _, depth), shape = shape_of(weights), shape_of(op.results[0])
    column = reshape(or_least((1, 1, parts, 1), reshape(x, (1, 1, 1, depth))), (parts, depth, 1))
    values, added = constant_value(weights), constant_value(bias)
    assert values is not None and added is not None
    rows = constant(values.reshape(parts, outputs // parts, depth))
    products = emit("matmul", [rows, column, *copied(zeros[::-1])], (parts, outputs // parts, 1), "i32")
    sums = reshape(products, shape)
    if added.any():
        sums = emit("add", [sums, constant(np.broadcast_to(added, shape[-1:]).reshape(shape))], shape, "i32")
    multipliers, shift = _of_one_shift(op)
    factors = constant(np.broadcast_to(multipliers, shape[-1:]).reshape(shape).astype(np.int32))
    scaled = emit("mul", [sums, factors, constant(np.array([shift], np.int8))], shape, "i32")
    zero = constant_value(op.operands[4])
    assert zero is not None
    return rescale(scaled, element_type(op.results[0]), [1 << 30], [30], output_zp=int(zero.item()))
