"""Quotients, rounded or not, and what they leave."""

from __future__ import annotations

import torch
from torch.fx import Node

from tosaic.frontend.builder import Builder
from tosaic.frontend.lowerings.elementwise import Number, pointwise, promoted, trunc
from tosaic.frontend.lowerings.op_quantization import OneToOne
from tosaic.support.mlir import ir

aten = torch.ops.aten


@pointwise(aten.div.Tensor, aten.div.Scalar, quantized=OneToOne())
def div(b: Builder, node: Node, x: Number, y: Number) -> ir.Value:
    x, y = promoted(b, node, x, y)
    if isinstance(y, int | float):
        return b.pointwise("mul", x, 1.0 / y)
    return b.pointwise("mul", x, b.pointwise("reciprocal", y))


@pointwise(aten.div.Tensor_mode, aten.div.Scalar_mode, steps=True)
def div_mode(b: Builder, node: Node, x: Number, y: Number, rounding_mode: str | None) -> ir.Value:
    x, y = promoted(b, node, x, y)
    if rounding_mode is None:
        return div(b, node, x, y)
    if b.element(node) == b.f32:
        quotient = div(b, node, x, y)
        return b.pointwise("floor", quotient) if rounding_mode == "floor" else trunc(b, node, quotient)
    divisor = b.scalar(y, 0, b.i32) if isinstance(y, int | float) else b.value(y)
    return b.pointwise("intdiv", x, divisor) if rounding_mode == "trunc" else _floor_quotient(b, x, divisor)


@pointwise(aten.floor_divide.default, steps=True)
def floor_divide(b: Builder, node: Node, x: Number, y: Number) -> ir.Value:
    return div_mode(b, node, x, y, "floor")


@pointwise(aten.remainder.Tensor, aten.remainder.Scalar, steps=True)
def remainder(b: Builder, node: Node, x: Number, y: Number) -> ir.Value:
    """What floor leaves: it has the sign of y."""
    return _rest(b, node, x, y, "floor")


@pointwise(aten.fmod.Tensor, aten.fmod.Scalar, steps=True)
def fmod(b: Builder, node: Node, x: Number, y: Number) -> ir.Value:
    """What truncation leaves: it has the sign of x."""
    return _rest(b, node, x, y, "trunc")


def _rest(b: Builder, node: Node, x: Number, y: Number, rounding_mode: str) -> ir.Value:
    x, y = promoted(b, node, x, y)
    return b.pointwise("sub", x, b.pointwise("mul", div_mode(b, node, x, y, rounding_mode), y))


def _floor_quotient(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """One less than the truncated quotient where a rest and the divisor differ in sign."""
    quotient = b.pointwise("intdiv", x, y)
    rest = b.pointwise("sub", x, b.pointwise("mul", quotient, y))
    exact = b.pointwise("equal", rest, 0, element=b.bool)
    apart = b.pointwise("logical_xor", _is_negative(b, rest), _is_negative(b, y))
    down = b.pointwise("logical_and", b.pointwise("logical_not", exact), apart)
    return b.pointwise("sub", quotient, b.cast(down, b.i32))


def _is_negative(b: Builder, x: ir.Value) -> ir.Value:
    return b.pointwise("greater", 0, x, element=b.bool)
