"""Convolutions, products, pools and reductions as integer ops with a RESCALE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize, widen
from tosaic.passes.quantize.quantization import (
    dequantized_view,
    float_constant,
    quantized_view,
)
from tosaic.support.attributes import enum_of, ints_of
from tosaic.support.errors import PassError
from tosaic.support.mlir import constant, constant_value, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import element, emit, rebuild, tensor, zero_point

_ACCUMULATOR = {"i8": "i32", "i16": "i48"}
_BIAS_RANGE = {"i32": 2**31 - 1, "i48": 2**47 - 1}
_CHANNEL = {"tosa.conv2d": 0, "tosa.conv3d": 0, "tosa.transpose_conv2d": 0}


@lowers("tosa.conv2d", "tosa.depthwise_conv2d", "tosa.transpose_conv2d", "tosa.conv3d")
def convolution(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """Integer convolution, bias in units of input scale x weight scale, one factor per output channel."""
    x, weight = quantized_view(op.operands[0]), dequantized_view(op.operands[1])
    bias = float_constant(op.operands[2])
    if x is None or weight is None or bias is None or x[1].storage not in _ACCUMULATOR:
        return None
    channels = shape_of(op.results[0])[-1]
    weight_scales = _output_channel_scales(op, weight[1], channels)
    if weight_scales is None or len(set(weight[1].zero_points)) > 1 or weight[1].storage not in ("i4", "i8"):
        return None
    units = [x[1].scale * scale for scale in weight_scales]
    accumulator = _ACCUMULATOR[x[1].storage]
    result = rebuild(
        op,
        [
            x[0],
            weight[0],
            _bias(op, bias, units, accumulator, channels),
            zero_point(x[1].zero_point, x[1].storage),
            zero_point(weight[1].zero_point, weight[1].storage),
        ],
        tensor(shape_of(op.results[0]), accumulator),
        acc_type=element(accumulator),
    )
    return requantize(result, units, out)


@lowers("tosa.matmul")
def matmul(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """Integer matrix product; the right operand may be quantized per column."""
    a, b = quantized_view(op.operands[0]), dequantized_view(op.operands[1])
    if a is None or b is None or a[1].storage != b[1].storage or a[1].storage not in _ACCUMULATOR:
        return None
    if b[1].axis not in (None, 2) or len(set(b[1].zero_points)) > 1:
        return None
    product = emit(
        "matmul",
        [a[0], b[0], zero_point(a[1].zero_point, a[1].storage), zero_point(b[1].zero_point, b[1].storage)],
        shape_of(op.results[0]),
        _ACCUMULATOR[a[1].storage],
    )
    return requantize(product, [a[1].scale * scale for scale in b[1].scales], out)


@lowers("tosa.avg_pool2d")
def average_pool(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """The pool keeps its input's quantization, then a RESCALE where the output's differs.

    Without padding, and where the quantizations differ, a depthwise convolution by ones sums exactly and rounds once.
    """
    view = quantized_view(op.operands[0])
    if view is None or view[1].storage not in _ACCUMULATOR:
        return None
    x, quantization = view
    padded = any(ints_of(op, "pad"))
    if quantization != out and not padded and quantization.storage == "i8":
        return _pool_by_ones(op, x, quantization, out)
    points = [zero_point(quantization.zero_point, quantization.storage) for _ in range(2)]
    result = tensor(shape_of(op.results[0]), quantization.storage)
    pooled = rebuild(op, [x, *points], result, acc_type=element("i32"))
    if quantization == out:
        return pooled
    return requantize(pooled, [quantization.scale], out, input_zp=quantization.zero_point)


@lowers("tosa.reduce_sum")
def reduce_sum(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """The sum in i32 of values without their zero point."""
    view = quantized_view(op.operands[0])
    if view is None:
        return None
    x, quantization = view
    total = rebuild(op, [widen(x, quantization.zero_point)], tensor(shape_of(op.results[0]), "i32"))
    return requantize(total, [quantization.scale], out)


@lowers("tosa.resize")
def resize_bilinear(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """Bilinear weights sum to scale_y x scale_x, so that the zero point leaves as a constant (TOSA 1.0, RESIZE)."""
    view = quantized_view(op.operands[0])
    scale = constant_value(op.operands[1])
    if enum_of(op, "mode") != "BILINEAR" or view is None or scale is None or view[1].storage != "i8":
        return None
    x, quantization = view
    shape = shape_of(op.results[0])
    weight = int(scale[0]) * int(scale[2])
    total = rebuild(op, [x, *list(op.operands)[1:]], tensor(shape, "i32"))
    if quantization.zero_point:
        offset = constant(np.full([1] * len(shape), quantization.zero_point * weight, np.int32))
        total = emit("sub", [total, offset], shape, "i32")
    return requantize(total, [quantization.scale / weight], out)


def _pool_by_ones(op: ir.Operation, x: ir.Value, quantization: Quantization, out: Quantization) -> ir.Value:
    kernel = ints_of(op, "kernel")
    channels = shape_of(x)[-1]
    operands = [
        x,
        constant(np.ones((*kernel, channels, 1), np.int8)),
        constant(np.zeros(channels, np.int32)),
        zero_point(quantization.zero_point, "i8"),
        zero_point(0, "i8"),
    ]
    total = emit(
        "depthwise_conv2d",
        operands,
        shape_of(op.results[0]),
        "i32",
        acc_type=element("i32"),
        pad=[0] * 4,
        stride=ints_of(op, "stride"),
        dilation=[1, 1],
    )
    return requantize(total, [quantization.scale / int(np.prod(kernel))], out)


def _output_channel_scales(op: ir.Operation, weight: Quantization, channels: int) -> list[float] | None:
    """One scale, or one per output channel; None where the quantized axis does not follow output channels."""
    if weight.axis is None:
        return [weight.scale]
    if op.name == "tosa.depthwise_conv2d":
        _, _, inputs, multiplier = shape_of(op.operands[1])
        if weight.axis == 2:
            return [scale for scale in weight.scales for _ in range(multiplier)]
        return list(weight.scales) * inputs if weight.axis == 3 else None
    if weight.axis != _CHANNEL[op.name] or len(weight.scales) != channels:
        return None
    return list(weight.scales)


def _bias(op: ir.Operation, bias: np.ndarray, units: Sequence[float], accumulator: str, channels: int) -> ir.Value:
    scaled = np.rint(np.broadcast_to(bias, channels) / np.array(units))
    limit = _BIAS_RANGE[accumulator]
    if not np.isfinite(scaled).all():
        raise PassError("a bias is not a finite number", where=str(op.location))
    whole = np.clip(scaled, -limit, limit).astype(np.int64)
    if accumulator == "i32":
        return constant(whole.astype(np.int32))
    return constant(whole, element("i48"))
