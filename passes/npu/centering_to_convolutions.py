"""What takes the mean of channels from each of them becomes a convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import RANGES, rescale_of
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, convolved, copied, to_cheapest
from tosaic.support.attributes import int_of
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape
from tosaic.support.values import producer, users

_WIDEST = 255
"""The largest magnitude of an int8 without its zero point."""


@register
@dataclass(frozen=True)
class CenteringToConvolutions(ModulePass):
    """Write a RESCALE of each channel less a part of their sum, as LAYER_NORM begins, as a 1x1 CONV2D.

    That is done where it costs the NPU of `target` fewer cycles; without one, they stay.
    """

    name: ClassVar[str] = "centering-to-convolutions"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.rescale")


@dataclass(frozen=True)
class _Linear:
    """`own * x[c] + all * sum(x)` for channel c, exactly: nothing on the way rounds or saturates.

    Args:
        x: int8.
        zero: the zero point of `x`.
        ops: that compute it, in order.
    """

    x: ir.Value
    zero: int
    own: int
    all: int
    ops: tuple[ir.Operation, ...]

    @property
    def largest(self) -> int:
        """The largest magnitude that it can have."""
        channels = shape_of(self.x)[-1]
        return _WIDEST * (abs(self.own + self.all) + (channels - 1) * abs(self.all))


def _forms(op: ir.Operation) -> tuple[Sequence[ir.Operation], list[Form]]:
    sub, rescale = producer(op.operands[0], "tosa.sub"), rescale_of(op)
    linear = _linear(op.operands[0]) if sub and rescale and rescale.by_power_of_two and not rescale.input_zp else None
    if linear is None or rescale is None or not (linear.own and linear.all):
        return [op], []
    common = math.gcd(linear.own, linear.all)
    power = common & -common
    diagonal, beside = (linear.own + linear.all) // power, linear.all // power
    shift = rescale.shift - power.bit_length() + 1
    inside = {op, *linear.ops}
    if shift < 2 or max(abs(diagonal), abs(beside)) > 127:
        return [op], []
    if any(user not in inside for each in linear.ops for user in users(each.results[0])):
        return [op], []
    channels = shape_of(linear.x)[-1]
    weights = np.full((channels, channels), beside, np.int8)
    np.fill_diagonal(weights, diagonal)
    return [*linear.ops, op], [partial(_convolved, op, linear.zero, weights, shift)]


def _linear(value: ir.Value) -> _Linear | None:
    """What `value` is of one tensor of int8; None where that is not exact."""
    found = _combined(value)
    return found if found and found.largest <= RANGES[str(element_type(value))][1] else None


def _combined(value: ir.Value) -> _Linear | None:
    op = producer(value, "tosa.rescale", "tosa.reduce_sum", "tosa.sub")
    if op is None:
        return None
    if op.name == "tosa.sub":
        one, other = map(_linear, op.operands)
        if one is None or other is None or (one.x, one.zero) != (other.x, other.zero):
            return None
        ops = tuple(dict.fromkeys([*one.ops, *other.ops, op]))
        return _Linear(one.x, one.zero, one.own - other.own, one.all - other.all, ops)
    read = op.operands[0]
    if op.name == "tosa.reduce_sum":
        inner = _linear(read)
        if inner is None or int_of(op, "axis") != len(shape_of(read)) - 1 or shape_of(read) != shape_of(inner.x):
            return None
        return _Linear(inner.x, inner.zero, 0, inner.own + shape_of(read)[-1] * inner.all, (*inner.ops, op))
    rescale = rescale_of(op)
    if rescale is None or rescale.output_zp or rescale.multiplier % (1 << rescale.shift):
        return None
    factor = rescale.multiplier >> rescale.shift
    if rescale.source == "i8":
        return _Linear(read, rescale.input_zp, factor, 0, (op,))
    inner = None if rescale.input_zp else _linear(read)
    return inner and _Linear(inner.x, inner.zero, factor * inner.own, factor * inner.all, (*inner.ops, op))


def _convolved(op: ir.Operation, zero: int, weights: np.ndarray, shift: int, x: ir.Value) -> ir.Value:
    channels = len(weights)
    image = (1, 1, math.prod(shape_of(x)[:-1]), channels)
    sums = convolved(reshape(x, image), weights.reshape(channels, 1, 1, channels), image, zero)
    _, multiplier, _, *zeros = op.operands
    scale = [*copied([multiplier]), constant(np.array([shift], np.int8)), *copied(zeros)]
    result = ir.RankedTensorType.get(image, element_type(op.results[0]))
    return reshape(rebuild(op, [sums, *scale], result), shape_of(op.results[0]))
