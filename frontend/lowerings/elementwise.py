"""Elementwise arithmetic, activations, comparisons and casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch.fx import Node

from tosaic.frontend.builder import Builder, Operand, narrowed, shape
from tosaic.frontend.constant import Constant
from tosaic.frontend.lowerings.op_quantization import Arithmetic, Clamp, Joined, OneToOne, Shared
from tosaic.frontend.lowerings.registry import lowers
from tosaic.support import mlir
from tosaic.support.errors import ModelError
from tosaic.support.mlir import ir

aten = torch.ops.aten
Number: TypeAlias = Operand | int | float | bool

pointwise = partial(lowers, pointwise=True)


def promoted(b: Builder, node: Node, *operands: Number) -> list[Number]:
    """The operands in the element type of the node's result, as PyTorch promotes them."""
    element = b.element(node)
    return [b.cast(x, element) if isinstance(x, ir.Value) else _typed(x, element) for x in operands]


def _typed(x: Number, element: ir.Type) -> Number:
    if not isinstance(x, Constant) or x.quantization:
        return x
    dtype = mlir.numpy_dtype(element)
    return Constant((narrowed(x.array) if dtype.kind == "i" else x.array).astype(dtype))


def _common(b: Builder, *operands: Number) -> list[Number]:
    """The operands of a comparison in one element type: float where any is."""
    floats = any(isinstance(x, float) or (isinstance(x, ir.Value) and mlir.element_type(x) == b.f32) for x in operands)
    element = b.f32 if floats else b.i32
    return [b.cast(x, element) if isinstance(x, ir.Value) else x for x in operands]


@pointwise(aten.add.Tensor, raw=("x", "y"), quantized=Arithmetic())
@pointwise(aten.add.Scalar, raw=("x", "y"), quantized=OneToOne())
def add(b: Builder, node: Node, x: Number, y: Number, alpha: float) -> ir.Value:
    x, y = promoted(b, node, x, y)
    return b.pointwise("add", x, _times(b, y, alpha))


@pointwise(aten.sub.Tensor, raw=("x", "y"), quantized=Arithmetic())
@pointwise(aten.sub.Scalar, raw=("x", "y"), quantized=OneToOne())
def sub(b: Builder, node: Node, x: Number, y: Number, alpha: float) -> ir.Value:
    x, y = promoted(b, node, x, y)
    return b.pointwise("sub", x, _times(b, y, alpha))


@pointwise(aten.rsub.Tensor, quantized=Arithmetic())
@pointwise(aten.rsub.Scalar, quantized=OneToOne())
def rsub(b: Builder, node: Node, x: Number, y: Number, alpha: float) -> ir.Value:
    x, y = promoted(b, node, x, y)
    return b.pointwise("sub", y, _times(b, x, alpha))


def _times(b: Builder, x: Number, factor: float) -> Number:
    if factor == 1:
        return x
    return x * factor if isinstance(x, int | float) else b.pointwise("mul", x, factor)


@pointwise(aten.mul.Tensor, raw=("x", "y"), quantized=Arithmetic())
@pointwise(aten.mul.Scalar, raw=("x", "y"), quantized=OneToOne())
def mul(b: Builder, node: Node, x: Number, y: Number) -> ir.Value:
    return b.pointwise("logical_and" if b.element(node) == b.bool else "mul", *promoted(b, node, x, y))


@pointwise(aten.maximum.default, quantized=Arithmetic())
def maximum(b: Builder, node: Node, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.pointwise("logical_or" if b.element(node) == b.bool else "maximum", *promoted(b, node, x, y))


@pointwise(aten.minimum.default, quantized=Arithmetic())
def minimum(b: Builder, node: Node, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.pointwise("logical_and" if b.element(node) == b.bool else "minimum", *promoted(b, node, x, y))


@pointwise(aten.pow.Tensor_Scalar, quantized=OneToOne())
def pow_scalar(b: Builder, node: Node, x: ir.Value, exponent: float) -> ir.Value:
    if exponent == 2:
        return b.pointwise("mul", x, x)
    if exponent == 0.5:
        return sqrt(b, node, x)
    if exponent == -0.5:
        return b.pointwise("rsqrt", x)
    if exponent == int(exponent):
        return _integer_power(b, x, int(exponent))
    return b.pointwise("pow", x, float(exponent))


def _integer_power(b: Builder, x: ir.Value, exponent: int) -> ir.Value:
    """By repeated multiplication: TOSA's POW is undefined on negative bases."""
    if exponent == 0:
        return b.pointwise("add", b.pointwise("mul", x, 0.0), 1.0)
    result = x
    for _ in range(abs(exponent) - 1):
        result = b.pointwise("mul", result, x)
    return b.pointwise("reciprocal", result) if exponent < 0 else result


@pointwise(aten.pow.Tensor_Tensor)
def pow_tensor(b: Builder, node: Node, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """|x|^y, with the sign of x where y is odd: TOSA's POW is undefined on negative bases, and on 0^0."""
    x, exponent = (b.cast(one, b.f32) for one in (x, exponent))
    zero = b.pointwise("equal", x, 0.0, element=b.bool)
    size = b.pointwise("pow", b.pointwise("select", zero, 1.0, b.pointwise("abs", x)), exponent)
    half = b.pointwise("mul", exponent, 0.5)
    odd = b.pointwise("logical_not", b.pointwise("equal", half, b.pointwise("floor", half), element=b.bool))
    flipped = b.pointwise("logical_and", odd, b.pointwise("greater", 0.0, x, element=b.bool))
    power = b.pointwise("select", flipped, b.pointwise("negate", size), size)
    none = b.pointwise("equal", exponent, 0.0, element=b.bool)
    return b.pointwise("select", zero, b.pointwise("select", none, 1.0, 0.0, element=b.f32), power)


def _unary(name: str) -> Callable[[Builder, Node, ir.Value], ir.Value]:
    def emit(b: Builder, node: Node, x: ir.Value) -> ir.Value:
        return b.pointwise(name, b.cast(x, b.element(node)))

    return emit


def _angle(x: torch.Tensor) -> torch.Tensor:
    """An angle, where float32 knows its place on the circle."""
    return x.masked_fill(x.abs() > 2.0**24, math.inf)


pointwise(aten.abs.default, quantized=OneToOne())(_unary("abs"))
pointwise(aten.ceil.default, steps=True)(_unary("ceil"))
pointwise(aten.cos.default, quantized=OneToOne(result=(-1.0, 1.0), inside=_angle))(_unary("cos"))
pointwise(aten.erf.default, quantized=OneToOne(result=(-1.0, 1.0)))(_unary("erf"))
pointwise(aten.exp.default, quantized=OneToOne())(_unary("exp"))
pointwise(aten.floor.default, steps=True)(_unary("floor"))
pointwise(aten.log.default, quantized=OneToOne())(_unary("log"))
pointwise(aten.neg.default, quantized=OneToOne())(_unary("negate"))
pointwise(aten.reciprocal.default, quantized=OneToOne())(_unary("reciprocal"))
pointwise(aten.rsqrt.default, quantized=OneToOne())(_unary("rsqrt"))
pointwise(aten.sigmoid.default, quantized=OneToOne(result=(0.0, 1.0)))(_unary("sigmoid"))
pointwise(aten.sin.default, quantized=OneToOne(result=(-1.0, 1.0), inside=_angle))(_unary("sin"))
pointwise(aten.tanh.default, quantized=OneToOne(result=(-1.0, 1.0)))(_unary("tanh"))


@pointwise(aten.trunc.default, steps=True)
def trunc(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    size = b.pointwise("floor", b.pointwise("abs", x))
    negative = b.pointwise("greater", 0.0, x, element=b.bool)
    return b.pointwise("select", negative, b.pointwise("negate", size), size, element=b.f32)


@pointwise(aten.sqrt.default, quantized=OneToOne())
def sqrt(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.pointwise("pow", x, 0.5)


@pointwise(aten.relu.default, quantized=Clamp())
def relu(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.clamp(x, 0, None)


@pointwise(aten.hardtanh.default, aten.clamp.default, quantized=Clamp())
def clamp(b: Builder, node: Node, x: ir.Value, low: float | None, high: float | None) -> ir.Value:
    return b.clamp(b.cast(x, b.element(node)), low, high)


@pointwise(aten.clamp_min.default, quantized=Clamp())
def clamp_min(b: Builder, node: Node, x: ir.Value, low: float) -> ir.Value:
    return b.clamp(x, low, None)


@pointwise(aten.clamp_max.default, quantized=OneToOne())
def clamp_max(b: Builder, node: Node, x: ir.Value, high: float) -> ir.Value:
    return b.clamp(x, None, high)


@pointwise(aten.relu6.default, quantized=Clamp())
def relu6(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.clamp(x, 0, 6)


@pointwise(aten.leaky_relu.default, quantized=OneToOne())
def leaky_relu(b: Builder, node: Node, x: ir.Value, slope: float) -> ir.Value:
    return b.pointwise("add", b.clamp(x, 0, None), b.pointwise("mul", b.clamp(x, None, 0), float(slope)))


@pointwise(aten.elu.default, quantized=OneToOne())
def elu(b: Builder, node: Node, x: ir.Value, alpha: float, scale: float, input_scale: float) -> ir.Value:
    below = b.pointwise("mul", b.clamp(x, None, 0), float(input_scale))
    curve = b.pointwise("mul", b.pointwise("sub", b.pointwise("exp", below), 1.0), float(alpha * scale))
    return b.pointwise("add", _times(b, b.clamp(x, 0, None), float(scale)), curve)


@pointwise(aten.gelu.default, quantized=OneToOne(saturation=(-4.0, math.inf)))
def gelu(b: Builder, node: Node, x: ir.Value, approximate: str) -> ir.Value:
    """x Phi(x), or its tanh approximation (Hendrycks and Gimpel 2016, section 2)."""
    half = b.pointwise("mul", x, 0.5)
    if approximate == "tanh":
        cube = b.pointwise("mul", b.pointwise("mul", x, x), x)
        inner = b.pointwise("add", x, b.pointwise("mul", cube, 0.044715))
        curve = b.pointwise("tanh", b.pointwise("mul", inner, math.sqrt(2 / math.pi)))
    else:
        curve = b.pointwise("erf", b.pointwise("mul", x, math.sqrt(0.5)))
    return b.pointwise("mul", half, b.pointwise("add", curve, 1.0))


@pointwise(aten.silu.default, quantized=OneToOne())
def silu(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.pointwise("mul", x, b.pointwise("sigmoid", x))


@pointwise(aten.hardsigmoid.default, quantized=OneToOne(result=(0.0, 1.0), saturation=(-3.0, 3.0)))
def hardsigmoid(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.pointwise("mul", b.clamp(b.pointwise("add", x, 3.0), 0, 6), 1 / 6)


@pointwise(aten.hardswish.default, quantized=OneToOne(saturation=(-3.0, math.inf)))
def hardswish(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.pointwise("mul", x, hardsigmoid(b, node, x))


def _comparison(name: str, swap: bool = False, negate: bool = False) -> Callable:
    def emit(b: Builder, node: Node, x: ir.Value, y: Number) -> ir.Value:
        x, y = _common(b, x, y)
        operands = (y, x) if swap else (x, y)
        result = b.pointwise(name, *operands, element=b.bool)
        return b.pointwise("logical_not", result) if negate else result

    return emit


pointwise(aten.eq.Tensor, aten.eq.Scalar, steps=True)(_comparison("equal"))
pointwise(aten.ne.Tensor, aten.ne.Scalar, steps=True)(_comparison("equal", negate=True))
pointwise(aten.gt.Tensor, aten.gt.Scalar, steps=True)(_comparison("greater"))
pointwise(aten.ge.Tensor, aten.ge.Scalar, steps=True)(_comparison("greater_equal"))
pointwise(aten.lt.Tensor, aten.lt.Scalar, steps=True)(_comparison("greater", swap=True))
pointwise(aten.le.Tensor, aten.le.Scalar, steps=True)(_comparison("greater_equal", swap=True))


def _logical(name: str) -> Callable:
    def emit(b: Builder, node: Node, x: ir.Value, y: Number) -> ir.Value:
        if b.element(node) != b.bool:
            return b.pointwise(f"bitwise_{name}", *promoted(b, node, x, y))
        truths = [truth(b, one) if isinstance(one, ir.Value) else bool(one) for one in (x, y)]
        return b.pointwise(f"logical_{name}", *truths)

    return emit


def truth(b: Builder, x: ir.Value) -> ir.Value:
    """Whether each element is not 0."""
    if mlir.element_type(x) == b.bool:
        return x
    return b.pointwise("logical_not", b.pointwise("equal", x, 0, element=b.bool))


pointwise(aten.logical_and.default, aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, steps=True)(_logical("and"))
pointwise(aten.logical_or.default, aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, steps=True)(_logical("or"))
pointwise(aten.logical_xor.default, aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, steps=True)(_logical("xor"))
pointwise(aten.__and__.Tensor)(_logical("and"))
pointwise(aten.__or__.Tensor)(_logical("or"))


@pointwise(aten.logical_not.default, steps=True)
def logical_not(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.pointwise("logical_not", truth(b, x))


@pointwise(aten.bitwise_not.default)
def bitwise_not(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.pointwise("logical_not" if mlir.element_type(x) == b.bool else "bitwise_not", x)


@pointwise(aten.where.self, quantized=Joined(constants=False))
@pointwise(aten.where.ScalarOther, aten.where.ScalarSelf)
def where(b: Builder, node: Node, condition: ir.Value, x: Number, y: Number) -> ir.Value:
    return _select(b, node, condition, x, y)


@pointwise(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(b: Builder, node: Node, x: ir.Value, mask: ir.Value, number: Number) -> ir.Value:
    return _select(b, node, mask, number, x)


def _select(b: Builder, node: Node, condition: ir.Value, x: Number, y: Number) -> ir.Value:
    element = b.element(node)
    limit = torch.finfo(torch.float32).max
    bounded = [min(max(one, -limit), limit) if isinstance(one, float) else one for one in promoted(b, node, x, y)]
    return b.pointwise("select", condition, *bounded, element=element)


@pointwise(aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.type_as.default)
def to_dtype(b: Builder, node: Node, x: ir.Value, *_options: object) -> ir.Value:
    element = b.element(node)
    source = mlir.element_type(x)
    if element == b.bool:
        return truth(b, x)
    if source == b.f32 and element != b.f32:
        x = trunc(b, node, x)  # PyTorch truncates, TOSA's CAST rounds to nearest even
    if source == b.bool and element != b.f32:
        return b.cast(x, element)
    if source == b.bool:
        return b.pointwise("select", x, 1.0, 0.0, element=element)
    return b.cast(x, element)


@pointwise(aten.clone.default, quantized=Shared(moves=True))
@pointwise(aten.alias.default, aten.contiguous.default, aten.detach.default, quantized=Shared(moves=True))
@pointwise(aten.lift_fresh_copy.default, quantized=Shared(moves=True))
def same(b: Builder, node: Node, x: ir.Value, *_options: object) -> ir.Value:
    """What leaves the values as they are."""
    return b.reshape(x, shape(x))


@pointwise(aten.dropout.default, quantized=Shared(moves=True))
def dropout(b: Builder, node: Node, x: ir.Value, probability: float, train: bool) -> ir.Value:
    if train and probability:
        raise ModelError("dropout at run time cannot be compiled", hint="export the model in evaluation mode, .eval()")
    return same(b, node, x)
