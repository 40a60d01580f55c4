"""Linear layers as 1x1 convolutions, products of two activations as matmul."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.fx import Node

from tosaic.frontend.builder import Builder, Operand, shape
from tosaic.frontend.constant import Constant
from tosaic.frontend.lowerings.op_quantization import Arithmetic, Weighted
from tosaic.frontend.lowerings.registry import lowers
from tosaic.support.mlir import ir

aten = torch.ops.aten


@lowers(aten.linear.default, raw=("weight", "bias"), quantized=Weighted(result_axis=-1))
def linear(b: Builder, node: Node, x: ir.Value, weight: Operand, bias: Operand | None) -> ir.Value:
    if not isinstance(weight, Constant):
        product = _matmul(b, x, b.transpose(weight, (1, 0)))
        return product if bias is None else b.pointwise("add", product, bias)
    *leading, inner = shape(x)
    outer = shape(weight)[0]
    kernel = b.value(weight.reshape((outer, 1, 1, inner), axis=weight.axis))
    rows = math.prod(leading)
    image = b.reshape(x, (1, rows, 1, inner))
    offsets = b.zeros(outer) if bias is None else b.value(bias)
    result = b.op(
        "conv2d",
        [image, kernel, offsets, b.zero_point(image), b.zero_point(kernel)],
        [1, rows, 1, outer],
        pad=ir.DenseI64ArrayAttr.get([0, 0, 0, 0]),
        stride=ir.DenseI64ArrayAttr.get([1, 1]),
        dilation=ir.DenseI64ArrayAttr.get([1, 1]),
        acc_type=ir.TypeAttr.get(b.f32),
    )
    return b.reshape(result, (*leading, outer))


@lowers(aten.addmm.default, raw=("mat2", "bias"))
def addmm(b: Builder, node: Node, bias: Operand, x: ir.Value, mat2: Operand, beta: float, alpha: float) -> ir.Value:
    if (beta, alpha) == (1, 1) and isinstance(mat2, Constant) and len(shape(bias)) == 1:
        return linear(b, node, x, mat2.transpose((1, 0)), bias)
    product = b.pointwise("mul", _matmul(b, x, b.value(mat2)), float(alpha))
    return b.pointwise("add", product, b.pointwise("mul", bias, float(beta)))


@lowers(aten.mm.default, aten.bmm.default, aten.matmul.default, raw=("mat2",), quantized=Arithmetic())
def matmul(b: Builder, node: Node, x: ir.Value, mat2: Operand) -> ir.Value:
    if isinstance(mat2, Constant) and len(shape(mat2)) == 2:
        return linear(b, node, x, mat2.transpose((1, 0)), None)
    return _matmul(b, x, b.value(mat2))


def _matmul(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """PyTorch's matmul: vectors gain an axis, leading axes broadcast."""
    left, right = shape(x), shape(y)
    rows, columns = len(left) > 1, len(right) > 1
    x = x if rows else b.reshape(x, (1, *left))
    y = y if columns else b.reshape(y, (*right, 1))
    (*outer_x, n, k), (*outer_y, _, m) = shape(x), shape(y)
    outer = np.broadcast_shapes(tuple(outer_x), tuple(outer_y))
    batch = math.prod(outer)
    x, y = _batched(b, x, outer, (batch, n, k)), _batched(b, y, outer, (batch, k, m))
    product = b.op("matmul", [x, y, b.zero_point(x), b.zero_point(y)], [batch, n, m])
    return b.reshape(product, (*outer, *((n,) if rows else ()), *((m,) if columns else ())))


def _batched(b: Builder, x: ir.Value, outer: tuple[int, ...], dims: tuple[int, int, int]) -> ir.Value:
    own = shape(x)
    ranked = b.reshape(x, (*(1,) * (len(outer) + 2 - len(own)), *own))
    multiples = [size // have for size, have in zip(outer, shape(ranked), strict=False)]
    return b.reshape(b.tile(ranked, [*multiples, 1, 1]), dims)
