"""Convolutions, products, pools and reductions as integer ops with a RESCALE."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize, scale_by, widen
from tosaic.passes.quantize.quantization import (
    dequantized_view,
    float_constant,
    quantized_view,
)
from tosaic.support.attributes import enum_of
from tosaic.support.errors import PassError
from tosaic.support.locations import describe
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import element, emit, rebuild, sliced, tensor, zero_point
from tosaic.support.values import producer

ACCUMULATOR = {"i8": "i32", "i16": "i48"}
# A RESCALE by 31 takes what is smaller than 2**30 (TOSA 1.0, apply_scale_32); `requantize` limits what others take.
LIMITS = {"i32": 2**30 - 1, "i48": 2**47 - 1}
_CHANNEL = {"tosa.conv2d": 0, "tosa.conv3d": 0, "tosa.transpose_conv2d": 0}


@lowers("tosa.conv2d", "tosa.depthwise_conv2d", "tosa.transpose_conv2d", "tosa.conv3d")
def convolution(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """Integer convolution, bias in units of input scale x weight scale, one factor per output channel."""
    x, weight = quantized_view(op.operands[0]), dequantized_view(op.operands[1])
    bias = float_constant(op.operands[2])
    if x is None or weight is None or bias is None or x[1].storage not in ACCUMULATOR:
        return None
    channels = shape_of(op.results[0])[-1]
    weight_scales = _output_channel_scales(op, weight[1], channels)
    if weight_scales is None or len(set(weight[1].zero_points)) > 1 or weight[1].storage not in ("i4", "i8"):
        return None
    units = [x[1].scale * scale for scale in weight_scales]
    accumulator = ACCUMULATOR[x[1].storage]
    whole = scaled_bias(op, bias, units, accumulator, channels)
    offsets = offsets_of(whole, accumulator)
    points = [zero_point(one.zero_point, one.storage) for one in (x[1], weight[1])]

    def convolve(image: ir.Value, kernel: ir.Value, offset: ir.Value) -> ir.Value:
        result = tensor(shape_of(op.results[0]), accumulator)
        return rebuild(op, [image, kernel, offset, *points], result, acc_type=element(accumulator))

    offset = np.abs(whole.astype(np.float64))
    largest = _weight_sums(op, *weight) * largest_magnitude(x[1]) + offset
    if accumulator == "i48" or (largest <= LIMITS["i32"]).all():
        return requantize(convolve(x[0], weight[0], offsets), units, out, largest=int(largest.max(initial=0)))
    parts = _parts(op, weight, largest_magnitude(x[1]), LIMITS["i32"] - offset)
    total, unit = _in_parts(x[0], weight[0], offsets, parts, convolve)
    return requantize(total, [one * unit for one in units], out)


@lowers("tosa.matmul")
def matmul(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """Integer matrix product; the right operand may be quantized per column."""
    a, b = quantized_view(op.operands[0]), dequantized_view(op.operands[1])
    if a is None or b is None or a[1].storage != b[1].storage or a[1].storage not in ACCUMULATOR:
        return None
    if b[1].axis not in (None, 2) or len(set(b[1].zero_points)) > 1:
        return None
    depth = shape_of(op.operands[0])[-1]
    if a[1].storage == "i8" and depth * largest_magnitude(a[1]) * largest_magnitude(b[1]) > LIMITS["i32"]:
        raise overflow(op, f"{depth:,} products")
    product = emit(
        "matmul",
        [a[0], b[0], zero_point(a[1].zero_point, a[1].storage), zero_point(b[1].zero_point, b[1].storage)],
        shape_of(op.results[0]),
        ACCUMULATOR[a[1].storage],
    )
    units = [a[1].scale * scale for scale in b[1].scales]
    return requantize(product, units, out, largest=depth * largest_magnitude(a[1]) * largest_magnitude(b[1]))


@lowers("tosa.reduce_sum")
def reduce_sum(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """The sum in i32 of values without zero point, in a unit so coarse that it fits; sums of sums too."""
    steps = [op]
    while (step := producer(steps[-1].operands[0], "tosa.reduce_sum")) is not None:
        steps.append(step)
    view = quantized_view(steps[-1].operands[0])
    if view is None:
        return None
    x, quantization = view
    count = math.prod(shape_of(x)) // math.prod(shape_of(op.results[0]))
    unit = _unit_of(count * largest_magnitude(quantization))
    wide = widen(x, quantization.zero_point) if unit == 1 else scale_by(x, "i32", [1 / unit], quantization.zero_point)
    total = wide
    for step in reversed(steps):
        total = rebuild(step, [total], tensor(shape_of(step.results[0]), "i32"))
    return requantize(total, [quantization.scale * unit], out)


@lowers("tosa.resize")
def resize_bilinear(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """RESIZE of integers, whose bilinear weights sum to scale_y x scale_x.

    So the zero point stays as it is (TOSA 1.0, RESIZE), or leaves as a constant where the result has another format.
    """
    view = quantized_view(op.operands[0])
    scale = constant_value(op.operands[1])
    if enum_of(op, "mode") != "BILINEAR" or view is None or scale is None or view[1].storage not in ACCUMULATOR:
        return None
    x, quantization = view
    shape = shape_of(op.results[0])
    weight = int(scale[0]) * int(scale[2])
    total = rebuild(op, [x, *list(op.operands)[1:]], tensor(shape, ACCUMULATOR[quantization.storage]))
    if (quantization.scale, quantization.zero_point) == (out.scale, out.zero_point):
        quantization, out = replace(quantization, zero_points=(0,)), replace(out, zero_points=(0,))
    if quantization.zero_point:
        offset = constant(np.full([1] * len(shape), quantization.zero_point * weight, np.int32))
        total = emit("sub", [total, offset], shape, "i32")
    return requantize(total, [quantization.scale / weight], out, largest=largest_magnitude(quantization) * weight)


def largest_magnitude(quantization: Quantization) -> int:
    """The largest |stored - zero point|."""
    return max(abs(limit - quantization.zero_point) for limit in (quantization.low, quantization.high))


def _unit_of(bound: float) -> int:
    """The least power of two in units of which `bound`, and its roundings, fit i32."""
    return 1 << max(0, math.frexp(bound)[1] - 31)


def _weight_sums(op: ir.Operation, weight: ir.Value, quantization: Quantization) -> np.ndarray:
    """The sum of the weights' magnitudes for each output channel (float64), or the same bound for all."""
    stored, depthwise = constant_value(weight), op.name == "tosa.depthwise_conv2d"
    if stored is None:
        count = math.prod(shape_of(weight)) // (1 if depthwise else shape_of(weight)[0])
        return np.full(1, float(count * largest_magnitude(quantization)))
    magnitudes = np.abs(stored.astype(np.float64) - quantization.zero_point)
    return magnitudes.sum((0, 1)).reshape(-1) if depthwise else magnitudes.reshape(len(stored), -1).sum(1)


def _parts(op: ir.Operation, weight: tuple[ir.Value, Quantization], largest: int, rest: np.ndarray) -> int:
    """How many sums over input channels fit in the `rest` that the offsets leave, whatever the input."""
    inner = shape_of(op.operands[0])[-1]
    per_channel = inner and np.prod(shape_of(weight[0])[1:-1]) * largest_magnitude(weight[1]) * largest
    if op.name != "tosa.conv2d" or constant_value(weight[0]) is None or (per_channel > rest).any():
        raise overflow(op, "the sum of its weights times the largest input")
    return -(-inner // int((rest // per_channel).min()))


def _in_parts(
    x: ir.Value, kernel: ir.Value, offsets: ir.Value, parts: int, convolve: Callable[..., ir.Value]
) -> tuple[ir.Value, int]:
    """A convolution as a sum over groups of input channels, and the unit of the i32 that it is in."""
    *leading, inner = shape_of(x)
    weights, bias = constant_value(kernel), constant_value(offsets)
    assert weights is not None and bias is not None
    unit, size = 1 << parts.bit_length(), -(-inner // parts)
    total: ir.Value | None = None
    for start in range(0, inner, size):
        some = min(size, inner - start)
        image = sliced(x, [*[0] * len(leading), start], [*leading, some])
        part = constant(np.ascontiguousarray(weights[..., start : start + some]), element_type(kernel))
        one = scale_by(
            convolve(image, part, offsets if start == 0 else constant(np.zeros_like(bias))), "i32", [1 / unit]
        )
        total = one if total is None else emit("add", [total, one], shape_of(one), "i32")
    assert total is not None
    return total, unit


def overflow(op: ir.Operation, what: str) -> PassError:
    return PassError(
        "an int32 accumulator can overflow",
        where=describe(op.location),
        why=f"{what} can exceed 2^31 - 1",
        hint="use int16 activations, whose sums have 48 bits, or exclude this layer",
    )


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


def scaled_bias(
    op: ir.Operation, bias: np.ndarray, units: Sequence[float], accumulator: str, channels: int
) -> np.ndarray:
    """A bias as int64 in the units of its accumulator.

    Raises:
        PassError: it does not fit.
    """
    scaled = np.rint(np.broadcast_to(bias, channels) / np.array(units))
    limit = LIMITS[accumulator]
    if not np.isfinite(scaled).all():
        raise PassError("a bias is not a finite number", where=describe(op.location))
    if np.abs(scaled).max(initial=0) > limit:
        worst = float(np.abs(bias).max())
        raise PassError(f"a bias of {worst:g} does not fit {accumulator}", where=describe(op.location),
                        why="it counts in units of input scale x weight scale",
                        hint="check for weights or inputs that are almost zero, or exclude this layer")  # fmt: skip
    return scaled.astype(np.int64)


def offsets_of(whole: np.ndarray, accumulator: str) -> ir.Value:
    """The operand of a convolution that holds its bias."""
    return constant(whole.astype(np.int32)) if accumulator == "i32" else constant(whole, element(accumulator))
