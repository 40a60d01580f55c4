"""Normalizations: softmax and layer_norm as composites, batch norm as an affine map."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from tosaic.frontend.builder import Builder, Operand, shape
from tosaic.frontend.constant import Constant
from tosaic.frontend.lowerings.op_quantization import OneToOne
from tosaic.frontend.lowerings.registry import lowers
from tosaic.support.errors import ModelError
from tosaic.support.mlir import ir

aten = torch.ops.aten


@lowers(aten.softmax.int, aten._softmax.default, quantized=OneToOne(result=(0.0, 1.0), depth=16.0))
def softmax(b: Builder, node: Node, x: ir.Value, dim: int, *_options: object) -> ir.Value:
    dims = shape(x)
    x = b.value(b.ranked(x, 1))
    axis = dim % len(shape(x))

    def body(value: ir.Value) -> list[ir.Value]:
        powers = b.pointwise("exp", b.pointwise("sub", value, b.reduce("max", value, axis)))
        return [b.pointwise("mul", powers, b.pointwise("reciprocal", b.reduce("sum", powers, axis)))]

    (result,) = b.composite("softmax", [x], body, axis=_i64(axis))
    return b.reshape(result, dims)


def _square_sum(x: Tensor, normalized: Sequence[int], *_options: object) -> Tensor:
    axes = tuple(range(-len(normalized), 0))
    return (x - x.mean(axes, keepdim=True)).square().sum(axes)


def _sum_of_squares(x: Tensor, normalized: Sequence[int], *_options: object) -> Tensor:
    return x.square().sum(tuple(range(-len(normalized), 0)))


def _vector(b: Builder, operand: Operand | None, size: int, default: float) -> Operand:
    if operand is None:
        return Constant(np.full(size, default, np.float32))
    return operand.reshape((size,)) if isinstance(operand, Constant) else b.reshape(operand, (size,))


@lowers(aten.layer_norm.default, raw=("weight", "bias"), quantized=OneToOne(inside=_square_sum))
def layer_norm(
    b: Builder,
    node: Node,
    x: ir.Value,
    normalized: Sequence[int],
    weight: Operand | None,
    bias: Operand | None,
    epsilon: float,
    *_options: object,
) -> ir.Value:
    """Ba et al. 2016, eq. 3, over the last axes joined into one."""
    dims = shape(x)
    size = math.prod(normalized)
    axis = len(dims) - len(normalized)
    flat = b.reshape(x, (*dims[:axis], size))

    def mean(value: ir.Value) -> ir.Value:
        return b.pointwise("mul", b.reduce("sum", value, axis), 1 / size)

    def body(value: ir.Value, gain: ir.Value, offset: ir.Value) -> list[ir.Value]:
        centered = b.pointwise("sub", value, mean(value))
        variance = mean(b.pointwise("mul", centered, centered))
        normal = b.pointwise("mul", centered, b.pointwise("rsqrt", b.pointwise("add", variance, float(epsilon))))
        return [b.pointwise("add", b.pointwise("mul", normal, gain), offset)]

    operands = [flat, _vector(b, weight, size, 1.0), _vector(b, bias, size, 0.0)]
    epsilon_attr = ir.FloatAttr.get(ir.F64Type.get(), float(epsilon))
    (result,) = b.composite("layer_norm", operands, body, axis=_i64(axis), epsilon=epsilon_attr)
    return b.reshape(result, dims)


@lowers(aten.rms_norm.default, raw=("weight",), quantized=OneToOne(inside=_sum_of_squares))
def rms_norm(
    b: Builder,
    node: Node,
    x: ir.Value,
    normalized: Sequence[int],
    weight: Operand | None = None,
    epsilon: float | None = None,
) -> ir.Value:
    """Zhang and Sennrich 2019, eq. 4, over the last axes joined into one; epsilon is float32's where it is None."""
    dims = shape(x)
    size, axis = math.prod(normalized), len(dims) - len(normalized)
    flat = b.reshape(x, (*dims[:axis], size))
    small = float(np.finfo(np.float32).eps) if epsilon is None else float(epsilon)

    def body(value: ir.Value, gain: ir.Value) -> list[ir.Value]:
        squares = b.reduce("sum", b.pointwise("mul", value, value), axis)
        root = b.pointwise("rsqrt", b.pointwise("add", b.pointwise("mul", squares, 1 / size), small))
        return [b.pointwise("mul", b.pointwise("mul", value, root), gain)]

    operands = [flat, _vector(b, weight, size, 1.0)]
    epsilon_attr = ir.FloatAttr.get(ir.F64Type.get(), small)
    (result,) = b.composite("rms_norm", operands, body, axis=_i64(axis), epsilon=epsilon_attr)
    return b.reshape(result, dims)


@lowers(aten.native_layer_norm.default, raw=("weight", "bias"))
def native_layer_norm(
    b: Builder,
    node: Node,
    x: ir.Value,
    normalized: Sequence[int],
    weight: Operand | None,
    bias: Operand | None,
    epsilon: float,
) -> tuple[ir.Value, ...]:
    """The result, the mean and 1 / deviation; what is not read is dropped later."""
    dims = shape(x)
    axis, size = len(dims) - len(normalized), math.prod(normalized)
    flat = b.reshape(x, (*dims[:axis], size))
    mean = b.pointwise("mul", b.reduce("sum", flat, axis), 1 / size)
    centered = b.pointwise("sub", flat, mean)
    variance = b.pointwise("mul", b.reduce("sum", b.pointwise("mul", centered, centered), axis), 1 / size)
    scale = b.pointwise("rsqrt", b.pointwise("add", variance, float(epsilon)))
    ranked = (*dims[:axis], *(1,) * len(normalized))
    return (
        layer_norm(b, node, x, normalized, weight, bias, epsilon), b.reshape(mean, ranked), b.reshape(scale, ranked)
    )  # fmt: skip


@lowers(aten._native_batch_norm_legit_no_training.default, raw=("weight", "bias", "mean", "variance"))
def batch_norm(
    b: Builder,
    node: Node,
    x: ir.Value,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand,
    variance: Operand,
    momentum: float,
    epsilon: float,
) -> tuple[ir.Value]:
    """y = x * a + c for every channel, a = weight / sqrt(variance + epsilon), c = bias - mean * a."""
    average, spread = _array(mean, 0.0, mean), _array(variance, 1.0, mean)
    scale = _array(weight, 1.0, mean) / np.sqrt(spread + epsilon)
    offset = _array(bias, 0.0, mean) - average * scale
    channel = (-1, *(1,) * (len(shape(x)) - 2))
    factors = [Constant(values.astype(np.float32).reshape(channel)) for values in (scale, offset)]
    return (b.pointwise("add", b.pointwise("mul", x, factors[0]), factors[1]),)


def _array(operand: Operand | None, default: float, like: Operand) -> np.ndarray:
    if operand is None:
        return np.full(shape(like), default)
    if not isinstance(operand, Constant):
        raise ModelError("a batch norm with computed statistics cannot be compiled", hint="call .eval() on the model")
    return operand.array.astype(np.float64)


def _i64(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
