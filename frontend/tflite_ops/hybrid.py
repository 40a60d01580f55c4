"""Float ops whose weights are int8: LiteRT measures the range of the input in each call, and multiplies integers.

Where windows reach into padding, the integers of the input less their zero point are int16 here. Its scale is a product
with a reciprocal, which LiteRT divides by: a value next to the middle of two integers may take the other one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tosaic.frontend.tflite_ops.activations import ACTIVATIONS
from tosaic.frontend.tflite_ops.products import product_of_rows
from tosaic.frontend.tflite_ops.registry import Call, tflite_op
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import clamp, element, emit, mul, rescale, reshape, sliced, zero_point

_LEAST, _MOST = -128, 127
_LEAST_RANGE = 1e-30  # below which an input is 0
_SAME = 0  # of Padding in schema.fbs


def _is_hybrid(call: Call) -> bool:
    weights = call.given(1)
    if call.kinds() != ("f32", "f32") or weights is None or weights.data is None or weights.kind != "i8":
        return False
    return bool(weights.scales) and not any(weights.zero_points)


@tflite_op("FULLY_CONNECTED", when=_is_hybrid)
def fully_connected(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """A range for each row."""
    weights, (x,) = call.input(1), operands
    outputs, depth = weights.shape
    rows = reshape(x, (math.prod(shape_of(x)) // depth, 1, 1, depth))
    steps, point, scale = _quantized(rows, bool(call.options["AsymmetricQuantizeInputs"]))
    integers = emit("cast", [steps], shape_of(rows), "i8")
    sums = rescale(product_of_rows(integers, weights.array), "i32", [1 << 30], [30])
    if point is not None:
        of_weights = constant(weights.array.astype(np.int32).sum(1, dtype=np.int32).reshape(1, 1, 1, outputs))
        sums = _binary("sub", sums, mul(emit("cast", [point], shape_of(point), "i32"), of_weights, "i32"))
    sums = emit("cast", [sums], shape_of(sums), "f32")
    shape = call.outputs[0].shape if len(call.outputs[0].shape) != 2 else (shape_of(rows)[0], outputs)
    return [reshape(_scaled(call, sums, scale), shape)]


@tflite_op("CONV_2D", when=_is_hybrid)
def convolution(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """A range for each image."""
    return [_over_windows(call, operands[0], "conv2d", call.input(1).array, call.input(1).shape[1:3])]


@tflite_op("DEPTHWISE_CONV_2D", when=_is_hybrid)
def depthwise(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """A range for each image."""
    weights, channels = call.input(1).array, shape_of(operands[0])[3]
    _, *window, outputs = weights.shape
    kernel = weights.reshape(*window, channels, outputs // channels)
    return [_over_windows(call, operands[0], "depthwise_conv2d", kernel, window)]


def _over_windows(call: Call, x: ir.Value, name: str, kernel: np.ndarray, window: Sequence[int]) -> ir.Value:
    options = call.options
    strides, dilations = ([options[f"{kind}{axis}"] for axis in axes] for kind, axes in _STEPS)
    pads, sizes = list[int](), list(shape_of(x))
    for axis, (step, apart, taps) in enumerate(zip(strides, dilations, window, strict=True), 1):
        reach = (taps - 1) * apart + 1
        size, results = sizes[axis], call.outputs[0].shape[axis]
        missing = max((results - 1) * step + reach - size, 0) if options["Padding"] == _SAME else 0
        pads += [missing // 2, missing - missing // 2]
        sizes[axis] = (results - 1) * step + reach - missing  # further pixels lie in no window
    steps, point, scale = _quantized(x, asymmetric=True)
    assert point is not None
    integers = emit("cast", [_binary("sub", steps, point)], shape_of(x), "i16")
    if tuple(sizes) != shape_of(x):
        integers = sliced(integers, (0, 0, 0, 0), sizes)
    return _scaled(call, _product(name, integers, kernel, pads, strides, dilations), scale)


_STEPS = (("Stride", ("H", "W")), ("Dilation", ("HFactor", "WFactor")))


def _quantized(x: ir.Value, asymmetric: bool) -> tuple[ir.Value, ir.Value | None, ir.Value]:
    """`AsymmetricQuantizeFloats` or `SymmetricQuantizeFloats` of all but the first axis.

    Returns:
        What is to be rounded to int8, its zero point, if it has one, and its scale, both [N, 1, 1, 1]; all f32.
    """
    number = partial(_number, len(shape_of(x)))
    low, high = (_binary(name, _joined(f"reduce_{name[:3]}", x), number(0)) for name in ("minimum", "maximum"))
    if not asymmetric:
        low, high = (_binary("minimum", low, _negated(high)), _binary("maximum", high, _negated(low)))
    span = _binary("maximum", _binary("sub", high, low), number(_LEAST_RANGE))
    steps = float(_MOST - _LEAST) if asymmetric else 2.0 * _MOST
    scale = mul(span, number(1 / steps), "f32")
    inverse = emit("reciprocal", [scale], shape_of(scale), "f32")
    scaled = mul(x, inverse, "f32")
    if not asymmetric:
        return clamp(scaled, -_MOST, _MOST), None, scale
    point = _binary("sub", number(_LEAST + 0.5), mul(low, inverse, "f32"))
    point = clamp(emit("floor", [point], shape_of(point), "f32"), _LEAST, _MOST)
    return clamp(_binary("add", scaled, point), _LEAST, _MOST), point, scale


def _joined(name: str, x: ir.Value) -> ir.Value:
    for axis in [axis for axis, size in enumerate(shape_of(x)) if axis and size > 1]:
        shape = [1 if index == axis else size for index, size in enumerate(shape_of(x))]
        x = emit(name, [x], shape, "f32", axis=axis)
    return x


def _product(
    name: str, x: ir.Value, kernel: np.ndarray, pad: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> ir.Value:
    """Sums of products, as f32."""
    sums, (batch, *sizes, _) = element("i48"), shape_of(x)
    window = kernel.shape[1:3] if name == "conv2d" else kernel.shape[:2]
    outputs = kernel.shape[0] if name == "conv2d" else kernel.shape[2] * kernel.shape[3]
    rows = [
        (size + sum(pad[2 * i : 2 * i + 2]) - (window[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i, size in enumerate(sizes)
    ]
    operands = [x, constant(kernel), constant(np.zeros(1, np.int64), sums), zero_point(0, "i16"), zero_point(0, "i8")]
    shape = (batch, *rows, outputs)
    total = emit(name, operands, shape, sums, pad=pad, stride=stride, dilation=dilation, acc_type=sums)
    return emit("cast", [rescale(total, "i32", [1 << 14], [14])], shape, "f32")


def _scaled(call: Call, sums: ir.Value, scale: ir.Value) -> ir.Value:
    """With the scales of input and weights, bias and activation."""
    weights, bias, outputs = call.input(1), call.given(2), shape_of(sums)[3]
    scales = np.broadcast_to(np.array(weights.scales, np.float32), outputs).reshape(1, 1, 1, outputs)
    result = mul(mul(sums, constant(np.ascontiguousarray(scales)), "f32"), scale, "f32")
    if bias is not None:
        result = _binary("add", result, constant(bias.real.reshape(1, 1, 1, outputs)))
    return ACTIVATIONS[call.options["FusedActivationFunction"]](result)


def _binary(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return emit(name, [a, b], np.broadcast_shapes(shape_of(a), shape_of(b)), element_type(a))


def _negated(x: ir.Value) -> ir.Value:
    return emit("negate", [x, *[zero_point(0, "f32")] * 2], shape_of(x), "f32")


def _number(rank: int, value: float) -> ir.Value:
    return constant(np.full([1] * rank, value, np.float32))
