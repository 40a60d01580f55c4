"""A factor and an offset for each channel become a depthwise convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import RANGES, rescale_of
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, convolved, copied, to_cheapest
from tosaic.support.attributes import bool_of, enum_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, tensor, zero_point
from tosaic.support.values import producer, users

_MOST_WEIGHT = 127
_NARROW = ("i8", "i16")
_FACTOR_BITS, _LEAST_SHIFT = 15, 2  # of RESCALE where it reads i48


@register
@dataclass(frozen=True)
class AffineToDepthwise(ModulePass):
    """Write a RESCALE of what adds a constant to each channel, as LAYER_NORM ends, as a 1x1 DEPTHWISE_CONV2D.

    That is done where it costs the NPU of `target` fewer cycles; without one, they stay.
    """

    name: ClassVar[str] = "affine-to-depthwise"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.rescale")


@dataclass(frozen=True)
class _Affine:
    """`weights[c] * (x - zero) + offsets[c]` for channel c, exactly.

    Args:
        x: int8 or int16.
        ops: that compute it, in order.
    """

    x: ir.Value
    zero: int
    weights: np.ndarray
    offsets: np.ndarray
    ops: tuple[ir.Operation, ...]

    @property
    def fits(self) -> bool:
        """Whether every value of it is an int32, and every weight an int8."""
        reach = max(abs(end - self.zero) for end in RANGES[str(element_type(self.x))])
        most = (np.abs(self.weights) * reach + np.abs(self.offsets)).max()
        return most <= RANGES["i32"][1] and np.abs(self.weights).max() <= _MOST_WEIGHT


def _forms(op: ir.Operation) -> tuple[Sequence[ir.Operation], list[Form]]:
    affine = _affine(op.operands[0])
    if affine is None or not affine.offsets.any() or not affine.fits:
        return [op], []
    scale = _scale(op) if str(element_type(affine.x)) == "i16" else ()
    if scale is None or any(len(users(each.results[0])) > 1 for each in affine.ops):
        return [op], []
    return [*affine.ops, op], [partial(_convolved, op, affine, scale)]


def _affine(value: ir.Value) -> _Affine | None:
    op = producer(value, "tosa.rescale", "tosa.mul", "tosa.add")
    if op is None:
        return None
    if op.name == "tosa.rescale":
        scale, channels = rescale_of(op), shape_of(value)[-1:]
        if scale is None or scale.source not in _NARROW or not scale.by_one or scale.output_zp:
            return None
        one, nothing = np.ones(channels, np.int64), np.zeros(channels, np.int64)
        return _Affine(op.operands[0], scale.input_zp, one, nothing, (op,))
    x, row = _with_row(op)
    if row is None:
        return None
    if op.name == "tosa.add":
        inner = _affine(x)
        return inner and replace(inner, offsets=inner.offsets + row, ops=(*inner.ops, op))
    return _Affine(x, 0, row, np.zeros_like(row), (op,)) if str(element_type(x)) in _NARROW else None


def _with_row(op: ir.Operation) -> tuple[ir.Value, np.ndarray | None]:
    """The operand of the result's shape, and the other one where it is a constant for each channel."""
    x, other = list(op.operands)[:2]
    if constant_value(x) is not None:
        x, other = other, x
    values, shape = constant_value(other), shape_of(op.results[0])
    if values is None or shape_of(x) != shape or values.size != shape[-1] or values.shape[-1] != shape[-1]:
        return x, None
    return x, values.reshape(-1).astype(np.int64)


def _scale(op: ir.Operation) -> tuple[np.ndarray, ...] | None:
    """The multipliers and shifts of a RESCALE as one of i48 takes them; None where they need more bits."""
    multipliers, shifts = (constant_value(operand) for operand in list(op.operands)[1:3])
    plain = not any(bool_of(op, name) for name in ("input_unsigned", "output_unsigned"))
    if multipliers is None or shifts is None or not plain or enum_of(op, "rounding_mode") != "SINGLE_ROUND":
        return None
    spare = np.array([max(0, int(each).bit_length() - _FACTOR_BITS) for each in multipliers])
    if (multipliers % (1 << spare)).any() or (shifts - spare < _LEAST_SHIFT).any():
        return None
    return (multipliers >> spare).astype(np.int16), (shifts - spare).astype(np.int8)


def _convolved(op: ir.Operation, affine: _Affine, scale: tuple[np.ndarray, ...], x: ir.Value) -> ir.Value:
    """The RESCALE of a 1x1 kernel's sums, by the multipliers and shifts of `scale` if there are any."""
    channels = len(affine.weights)
    image = (1, 1, math.prod(shape_of(x)[:-1]), channels)
    weights = affine.weights.astype(np.int8).reshape(1, 1, channels, 1)
    sums = convolved(reshape(x, image), weights, image, affine.zero, affine.offsets, "depthwise_conv2d")
    scales = list(map(constant, scale)) or copied(list(op.operands)[1:3])
    zeros = [zero_point(0, element_type(sums)), *copied([op.operands[4]])]
    result = rebuild(op, [sums, *scales, *zeros], tensor(image, element_type(op.results[0])), scale32=not scale)
    return reshape(result, shape_of(op.results[0]))
