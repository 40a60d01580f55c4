"""Integers and what they stand for: the quantize and dequantize ops of PT2E, with the scales of the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import tosaic.frontend.torchao_import  # noqa: F401  registers the ops below
from tosaic.frontend.onnx_ops.registry import CONTRIBUTED, onnx_op
from tosaic.frontend.onnx_ops.types import torch_dtype
from tosaic.frontend.onnx_ops.windows import convolution
from tosaic.support.errors import ModelError

_QD = torch.ops.quantized_decomposed
_RANGES = {
    "int8": (-128, 127, torch.int8),
    "uint8": (0, 255, torch.uint8),
    "int16": (-32768, 32767, torch.int16),
    "int32": (-(2**31), 2**31 - 1, torch.int32),
}


@onnx_op("QuantizeLinear", arrays="y_scale y_zero_point")
@onnx_op("QuantizeLinear", domain=CONTRIBUTED, arrays="y_scale y_zero_point")
def _quantize(
    x: Tensor,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    dtype = y_zero_point.dtype.name if y_zero_point is not None else "uint8"
    if output_dtype:
        dtype = str(torch_dtype(output_dtype)).removeprefix("torch.")
    return quantized(x, y_scale, y_zero_point, dtype, axis, block_size)


@onnx_op("DequantizeLinear", arrays="x_scale x_zero_point")
@onnx_op("DequantizeLinear", domain=CONTRIBUTED, arrays="x_scale x_zero_point")
def _dequantize(
    x: Tensor,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    return dequantized(x, x_scale, x_zero_point, axis, block_size)


@onnx_op("QLinearMatMul", arrays="a_scale a_zero b_scale b_zero y_scale y_zero")
def _matmul(
    a: Tensor,
    a_scale: np.ndarray,
    a_zero: np.ndarray,
    b: Tensor,
    b_scale: np.ndarray,
    b_zero: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
) -> Tensor:
    product = torch.matmul(dequantized(a, a_scale, a_zero, -2), dequantized(b, b_scale, b_zero, -1))
    return quantized(product, y_scale, y_zero, y_zero.dtype.name, -1)


@onnx_op("QLinearConv", arrays="x_scale x_zero w_scale w_zero y_scale y_zero", constant="w")
def _convolution(
    x: Tensor,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    w: Tensor,
    w_scale: np.ndarray,
    w_zero: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    bias: Tensor | None = None,
    **windows: Any,
) -> Tensor:
    real = None if bias is None else dequantized(bias, (x_scale * w_scale).astype(np.float32), None, 0)
    found = convolution(dequantized(x, x_scale, x_zero, 1), dequantized(w, w_scale, w_zero, 0), real, **windows)
    return quantized(found, y_scale, y_zero, y_zero.dtype.name, 1)


@onnx_op("DynamicQuantizeLinear")
def _dynamically_quantized(x: Tensor) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """The real values, of scale 1: calibration gives them a scale, as it does all others, and no run measures one."""
    return x, np.ones((), np.float32), np.zeros((), np.uint8)


@onnx_op("ConvInteger", arrays="x_zero w_zero", constant="w")
def _integer_convolution(
    x: Tensor, w: Tensor, x_zero: np.ndarray | None = None, w_zero: np.ndarray | None = None, **windows: Any
) -> Tensor:
    found = convolution(_less_zero(x, x_zero, 1), _less_zero(w, w_zero, 0), None, **windows)
    return found if x.is_floating_point() else found.to(torch.int32)


@onnx_op("MatMulInteger", arrays="a_zero b_zero")
def _integer_matmul(a: Tensor, b: Tensor, a_zero: np.ndarray | None = None, b_zero: np.ndarray | None = None) -> Tensor:
    found = torch.matmul(_less_zero(a, a_zero, -2), _less_zero(b, b_zero, -1))
    return found if a.is_floating_point() else found.to(torch.int32)


def _less_zero(x: Tensor, zero: np.ndarray | None, axis: int) -> Tensor:
    """Integers less their zero points, as floats, which hold them and sums of some 250 products exactly."""
    zeros = torch.from_numpy(np.asarray(0 if zero is None else zero, np.float32))
    if zeros.numel() > 1:
        zeros = zeros.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return x.float() - zeros


def quantized(
    x: Tensor, scale: np.ndarray, zero: np.ndarray | None, dtype: str, axis: int, block_size: int = 0
) -> Tensor:
    """Stored integers of a tensor; a scale with several elements has one for each index of `axis`.

    TOSA has no zero points of 16 bits. Such a tensor stays real, rounded to steps of an int16 that reaches as far.

    Raises:
        ModelError: the format is none that TOSA computes with.
    """
    if scale.size == 1 and (dtype == "uint16" or (dtype == "int16" and _zero(zero))):
        return _rounded_to_int16(x, float(scale.item()), _zero(zero), np.iinfo(dtype))
    low, high, kind = _limits(dtype, scale, block_size)
    if scale.size == 1:
        return _QD.quantize_per_tensor(x.float(), float(scale.item()), _zero(zero), low, high, kind)
    return _QD.quantize_per_channel(x.float(), *_of_channels(scale, zero), axis % x.ndim, low, high, kind)


def dequantized(x: Tensor, scale: np.ndarray, zero: np.ndarray | None, axis: int, block_size: int = 0) -> Tensor:
    """What stored integers stand for, as `quantized` has them; what stayed real is that."""
    if x.is_floating_point():
        return x
    low, high, kind = _limits(str(x.dtype).removeprefix("torch."), scale, block_size)
    if scale.size == 1:
        return _QD.dequantize_per_tensor(x, float(scale.item()), _zero(zero), low, high, kind)
    return _QD.dequantize_per_channel(x, *_of_channels(scale, zero), axis % x.ndim, low, high, kind)


def _rounded_to_int16(x: Tensor, scale: float, zero: int, stored: np.iinfo) -> Tensor:
    """Real values within what the stored type reaches: its end at 0 stands for a ReLU."""
    low, high, kind = _RANGES["int16"]
    ends = (stored.min - zero) * scale, (stored.max - zero) * scale
    format_ = (max(-ends[0], ends[1]) / high, 0, low, high, kind)
    return _QD.dequantize_per_tensor(_QD.quantize_per_tensor(x.float().clamp(*ends), *format_), *format_)


def _limits(dtype: str, scale: np.ndarray, block_size: int) -> tuple[int, int, torch.dtype]:
    if dtype not in _RANGES:
        raise ModelError(f"a tensor is quantized to {dtype}", hint=f"known are {', '.join(_RANGES)}")
    if block_size or scale.ndim > 1:
        raise ModelError("a tensor is quantized in blocks", hint="quantize it by tensor or by channel")
    return _RANGES[dtype]


def _zero(zero: np.ndarray | None) -> int:
    return 0 if zero is None else int(zero.item())


def _of_channels(scale: np.ndarray, zero: np.ndarray | None) -> tuple[Tensor, Tensor]:
    zeros = np.zeros(scale.shape, np.int64) if zero is None else np.broadcast_to(zero, scale.shape).astype(np.int64)
    return torch.from_numpy(scale.astype(np.float32)), torch.from_numpy(zeros)
