"""The ops that onnxruntime adds to ONNX and its quantizer writes: functions of the real values of their operands.

Source: `docs/ContribOperators.md` of onnxruntime.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.onnx_ops.products import gemm
from tosaic.frontend.onnx_ops.quantization import dequantized, quantized
from tosaic.frontend.onnx_ops.reductions import softmax, softmax_of_rows
from tosaic.frontend.onnx_ops.registry import CONTRIBUTED, onnx_op
from tosaic.frontend.onnx_ops.windows import average_pool, global_average_pool

_BATCHED_SOFTMAX = 13  # the first opset whose softmax is one of an axis


def _channels_first(pool: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def function(x: Tensor, *, channels_last: int = 0, **attributes: Any) -> Tensor:
        if not channels_last:
            return pool(x, **attributes)
        return pool(x.movedim(-1, 1), **attributes).movedim(1, -1)

    return function


def _leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


def _softmax(x: Tensor, *, axis: int = -1, opset: int) -> Tensor:
    return softmax(x, axis=axis) if opset >= _BATCHED_SOFTMAX else softmax_of_rows(x, axis=axis)


def _mean(x: Tensor, *, axes: list[int], keepdims: int = 1) -> Tensor:
    return x.mean(tuple(axes), bool(keepdims))


_UNARY: dict[str, Callable[..., Tensor]] = {
    "QLinearAveragePool": _channels_first(average_pool),
    "QLinearGlobalAveragePool": _channels_first(global_average_pool),
    "QLinearLeakyRelu": _leaky_relu,
    "QLinearReduceMean": _mean,
    "QLinearSigmoid": torch.sigmoid,
    "QLinearSoftmax": _softmax,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"QLinearAdd": operator.add, "QLinearMul": operator.mul}


def _register_unary(name: str, function: Callable[..., Tensor]) -> None:
    @onnx_op(name, domain=CONTRIBUTED, arrays="x_scale x_zero y_scale y_zero")
    def unary(
        x: Tensor,
        x_scale: np.ndarray,
        x_zero: np.ndarray | None,
        y_scale: np.ndarray,
        y_zero: np.ndarray | None = None,
        **attributes: Any,
    ) -> Tensor:
        return _as(x, function(dequantized(x, x_scale, x_zero, 1), **attributes), y_scale, y_zero)


def _register_binary(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @onnx_op(name, domain=CONTRIBUTED, arrays="a_scale a_zero b_scale b_zero y_scale y_zero")
    def binary(
        a: Tensor,
        a_scale: np.ndarray,
        a_zero: np.ndarray | None,
        b: Tensor,
        b_scale: np.ndarray,
        b_zero: np.ndarray | None,
        y_scale: np.ndarray,
        y_zero: np.ndarray | None = None,
    ) -> Tensor:
        return _as(a, function(dequantized(a, a_scale, a_zero, 1), dequantized(b, b_scale, b_zero, 1)), y_scale, y_zero)


for _name, _function in _UNARY.items():
    _register_unary(_name, _function)
for _name, _function in _BINARY.items():
    _register_binary(_name, _function)


@onnx_op("QLinearConcat", domain=CONTRIBUTED, arrays="y_scale y_zero", with_numbers=True)
def _concat(y_scale: np.ndarray, y_zero: np.ndarray, *triples: Any, axis: int) -> Tensor:
    """Triples of a tensor, its scale and its zero point."""
    parts = [
        dequantized(x, np.asarray(scale, np.float32), np.asarray(zero), 1)
        for x, scale, zero in zip(triples[::3], triples[1::3], triples[2::3], strict=True)
    ]
    return quantized(torch.cat(parts, axis), y_scale, y_zero, y_zero.dtype.name, 1)


@onnx_op("QLinearWhere", domain=CONTRIBUTED, arrays="x_scale x_zero y_scale y_zero z_scale z_zero")
def _where(
    condition: Tensor,
    x: Tensor,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    y: Tensor,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    z_scale: np.ndarray,
    z_zero: np.ndarray,
) -> Tensor:
    chosen = torch.where(condition, dequantized(x, x_scale, x_zero, 1), dequantized(y, y_scale, y_zero, 1))
    return quantized(chosen, z_scale, z_zero, z_zero.dtype.name, 1)


@onnx_op("QGemm", domain=CONTRIBUTED, arrays="a_scale a_zero b_scale b_zero y_scale y_zero")
def _gemm(
    a: Tensor,
    a_scale: np.ndarray,
    a_zero: np.ndarray,
    b: Tensor,
    b_scale: np.ndarray,
    b_zero: np.ndarray,
    bias: Tensor | None = None,
    y_scale: np.ndarray | None = None,
    y_zero: np.ndarray | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """The bias counts steps of both scales and `alpha`; without a scale of its own, the result is real."""
    steps = (alpha * a_scale * b_scale).astype(np.float32)
    product = gemm(
        dequantized(a, a_scale, a_zero, 1),
        dequantized(b, b_scale, b_zero, 0 if transB else 1),
        None if bias is None else dequantized(bias, steps, None, 0),
        alpha=alpha,
        transA=transA,
        transB=transB,
    )
    return product if y_scale is None else _as(a, product, y_scale, y_zero)


def _as(x: Tensor, result: Tensor, scale: np.ndarray, zero: np.ndarray | None) -> Tensor:
    """A real result, stored with the type of its zero point, else of the operand."""
    dtype = str(x.dtype).removeprefix("torch.") if zero is None else zero.dtype.name
    return quantized(result, scale, zero, dtype, 1)
