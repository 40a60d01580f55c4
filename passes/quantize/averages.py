"""Average pools in integers: by the pool itself, or as sums that one RESCALE rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.passes.quantize.compute import ACCUMULATOR, LIMITS, largest_magnitude, overflow
from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize
from tosaic.passes.quantize.quantization import quantized_view
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import element, emit, rebuild, rescale, reshape, tensor, zero_point

_TALLEST = 64  # kernel rows of an Ethos-U; so many int8 less their zero point also sum up within int16


@lowers("tosa.avg_pool2d")
def average_pool(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """The pool keeps its input's quantization, then a RESCALE where the output's differs.

    Without padding, and where the quantizations differ, a convolution by ones sums exactly and is rounded once.
    """
    view = quantized_view(op.operands[0])
    if view is None or view[1].storage not in ACCUMULATOR:
        return None
    x, quantization = view
    if quantization != out and not any(ints_of(op, "pad")) and quantization.storage == "i8":
        total = _sums(op, x, quantization.zero_point)
        average = requantize(total, [quantization.scale / math.prod(ints_of(op, "kernel"))], out)
        return reshape(average, shape_of(op.results[0]))
    area = math.prod(ints_of(op, "kernel"))
    if area * largest_magnitude(quantization) > LIMITS["i32"]:
        raise overflow(op, f"{area:,} elements")
    points = [zero_point(quantization.zero_point, quantization.storage) for _ in range(2)]
    result = tensor(shape_of(op.results[0]), quantization.storage)
    pooled = rebuild(op, [x, *points], result, acc_type=element("i32"))
    if quantization == out:
        return pooled
    return requantize(pooled, [quantization.scale], out, input_zp=quantization.zero_point)


def _sums(op: ir.Operation, x: ir.Value, zero: int) -> ir.Value:
    """The sum of every window.

    Of a whole image these are sums of columns, one channel being as good as another. An NPU convolves those with one
    kernel for all channels, in less time than it takes for an average pool. It reads a depthwise kernel for each
    channel.
    """
    n, h, w, c = shape_of(x)
    kernel = ints_of(op, "kernel")
    steps = _factors(h * w) if kernel == (h, w) else None
    if steps is None:
        return _by_ones("depthwise_conv2d", x, (*kernel, c, 1), shape_of(op.results[0]), zero, ints_of(op, "stride"))
    tall, rest = steps
    sums = _by_ones("conv2d", reshape(x, (n, tall, rest * c, 1)), (1, tall, 1, 1), (n, 1, rest * c, 1), zero)
    if rest == 1:
        return sums
    exact = reshape(rescale(sums, "i16", [1 << 30], [30]), (n, rest, c, 1))
    return _by_ones("conv2d", exact, (1, rest, 1, 1), (n, 1, c, 1))


def _factors(rows: int) -> tuple[int, int] | None:
    """`rows` as a product of two numbers that both are rows enough, the first as large as can be."""
    found = (tall for tall in range(min(rows, _TALLEST), 0, -1) if rows % tall == 0)
    tall = next(found)
    return (tall, rows // tall) if rows // tall <= _TALLEST else None


def _by_ones(
    name: str,
    x: ir.Value,
    weights: Sequence[int],
    result: Sequence[int],
    zero: int = 0,
    stride: Sequence[int] = (1, 1),
) -> ir.Value:
    """A convolution by ones, without padding."""
    storage = str(element_type(x))
    accumulator = ACCUMULATOR[storage]
    bias = constant(np.zeros(result[-1], np.int32 if accumulator == "i32" else np.int64), element(accumulator))
    operands = [x, constant(np.ones(weights, np.int8)), bias, zero_point(zero, storage), zero_point(0, "i8")]
    window = {"pad": (0, 0, 0, 0), "stride": stride, "dilation": (1, 1), "acc_type": element(accumulator)}
    return emit(name, operands, result, accumulator, **window)
