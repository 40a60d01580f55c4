"""Inverse functions. Those of one operand compare nothing: a table with lines between its entries holds them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.fx import Node

from tosaic.frontend.builder import Builder
from tosaic.frontend.lowerings.elementwise import pointwise
from tosaic.frontend.lowerings.op_quantization import OneToOne
from tosaic.support.mlir import ir

aten = torch.ops.aten
_QUARTER = math.pi / 2
_HUGE = 1e9  # its arctangent is a right angle in float32, its square a number

# Chebyshev fits, lowest power first. Of atan(s) / s in s^2 for |s| <= tan(pi / 8), to 2e-8.
_ATAN = (0.99999998, -0.33332797, 0.19974405, -0.13851478, 0.07984963)
# Of erfinv(x) / x for w = -log(1 - x^2): in w - 2.5 up to w = 5, in sqrt(w) - 3 beyond, to 8e-7 (Giles 2010).
_CENTER = (1.50140936, 0.246640758, -4.17738976e-3, -1.25374861e-3, 2.18346915e-4, -4.38363159e-6, -3.46335617e-6,
           3.42524857e-7, 2.32858445e-8)  # fmt: skip
_TAIL = (2.83297899, 1.00168059, 9.38047744e-3, -7.69269205e-3, 6.01034107e-3, -3.50677728e-3, 9.32182914e-4)
_SEAM, _END = 5.0, 17.5


@pointwise(aten.atan.default, quantized=OneToOne(result=(-_QUARTER, _QUARTER)))
def atan(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    """Of half of half the angle: atan(x) = 2 atan(x / (1 + sqrt(1 + x^2)))."""
    half = _half_tangent(b, _half_tangent(b, b.clamp(x, -_HUGE, _HUGE)))
    curve = _polynomial(b, b.pointwise("mul", half, half), _ATAN)
    return b.pointwise("mul", b.pointwise("mul", half, curve), 4.0)


@pointwise(aten.asin.default, quantized=OneToOne(result=(-_QUARTER, _QUARTER)))
def asin(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    """2 atan(x / (1 + sqrt(1 - x^2)))."""
    cosine = _root(b, b.pointwise("sub", 1.0, b.pointwise("mul", x, x)))
    half = b.pointwise("mul", x, b.pointwise("reciprocal", b.pointwise("add", cosine, 1.0)))
    return b.pointwise("mul", atan(b, node, half), 2.0)


@pointwise(aten.acos.default, quantized=OneToOne(result=(0.0, math.pi)))
def acos(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.pointwise("sub", _QUARTER, asin(b, node, x))


@pointwise(aten.atan2.default)
def atan2(b: Builder, node: Node, y: ir.Value, x: ir.Value) -> ir.Value:
    """Of y / x; where x is negative half a turn more, towards the sign of y; a right angle where x is 0."""
    zero = b.pointwise("equal", x, 0.0, element=b.bool)
    slope = b.pointwise("mul", y, b.pointwise("reciprocal", b.pointwise("select", zero, 1.0, x, element=b.f32)))
    half_turn = b.pointwise("select", b.pointwise("greater", 0.0, y, element=b.bool), -math.pi, math.pi, element=b.f32)
    behind = b.pointwise("add", atan(b, node, slope), half_turn)
    found = b.pointwise("select", b.pointwise("greater", 0.0, x, element=b.bool), behind, atan(b, node, slope))
    level = b.pointwise("equal", y, 0.0, element=b.bool)
    upright = b.pointwise("select", level, 0.0, b.pointwise("mul", half_turn, 0.5), element=b.f32)
    return b.pointwise("select", zero, upright, found, element=b.f32)


@pointwise(aten.asinh.default, quantized=OneToOne())
def asinh(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    """log(x + sqrt(x^2 + 1)) of x > 0, less that of -x: for x < 0 nothing would be left of the sum."""

    def side(value: ir.Value) -> ir.Value:
        root = _root(b, b.pointwise("add", b.pointwise("mul", value, value), 1.0))
        return b.pointwise("log", b.pointwise("add", value, root))

    return b.pointwise("sub", side(b.clamp(x, 0, None)), side(b.clamp(b.pointwise("negate", x), 0, None)))


@pointwise(aten.acosh.default, quantized=OneToOne())
def acosh(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    root = _root(b, b.pointwise("sub", b.pointwise("mul", x, x), 1.0))
    return b.pointwise("log", b.pointwise("add", x, root))


@pointwise(aten.atanh.default, quantized=OneToOne())
def atanh(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    """(log(1 + x) - log(1 - x)) / 2."""
    ahead, behind = (b.pointwise("log", b.pointwise(name, 1.0, x)) for name in ("add", "sub"))
    return b.pointwise("mul", b.pointwise("sub", ahead, behind), 0.5)


@pointwise(aten.erfinv.default, quantized=OneToOne())
def erfinv(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    """Two polynomials, each constant where the other one begins."""
    rest = b.pointwise("mul", b.pointwise("sub", 1.0, x), b.pointwise("add", 1.0, x))
    depth = b.pointwise("negate", b.pointwise("log", rest))
    center = _polynomial(b, b.pointwise("sub", b.clamp(depth, None, _SEAM), 2.5), _CENTER)
    tail = _polynomial(b, b.pointwise("sub", _root(b, b.clamp(depth, _SEAM, _END)), 3.0), _TAIL)
    seam = sum(factor * (math.sqrt(_SEAM) - 3.0) ** power for power, factor in enumerate(_TAIL))
    return b.pointwise("mul", x, b.pointwise("add", center, b.pointwise("sub", tail, seam)))


def _half_tangent(b: Builder, x: ir.Value) -> ir.Value:
    root = _root(b, b.pointwise("add", b.pointwise("mul", x, x), 1.0))
    return b.pointwise("mul", x, b.pointwise("reciprocal", b.pointwise("add", root, 1.0)))


def _root(b: Builder, x: ir.Value) -> ir.Value:
    return b.pointwise("pow", x, 0.5)


def _polynomial(b: Builder, x: ir.Value, factors: Sequence[float]) -> ir.Value:
    """Horner's scheme."""
    *lower, total = factors
    result = b.pointwise("add", b.pointwise("mul", x, total), lower.pop())
    for factor in reversed(lower):
        result = b.pointwise("add", b.pointwise("mul", result, x), factor)
    return result
