"""Ops of one element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tosaic.frontend.tflite_ops.fixed_point import (
    binary,
    narrowed,
    product,
    quotient,
    scaled,
    selected,
    widened,
)
from tosaic.frontend.tflite_ops.registry import Call, FileTensor, tflite_op
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.tosa_builder import clamp, emit, mul, reshape, zero_point

_INTEGERS = (("i8", "i8"), ("i16", "i16"))
_LIMITS = {"i8": (-128, 127), "i16": (-(2**15), 2**15 - 1)}
_COMPARISONS = {
    "GREATER": ("greater", False),
    "GREATER_EQUAL": ("greater_equal", False),
    "LESS": ("greater", True),
    "LESS_EQUAL": ("greater_equal", True),
    "EQUAL": ("equal", False),
}
_BITS_TO_COMPARE = 8
_ENTRIES = 256
_SIGMOID = np.rint(2**16 / (1 + np.exp(-np.arange(_ENTRIES) / 24))).astype(np.int64)
"""What LiteRT looks up, but for these entries, which are one more there."""
_SIGMOID[
    [4, 8, 12, *range(14, 18), 19, 20, 21, 22, 25, *range(27, 32), 33, 34, 35, 37, 39, 40, 41, *range(43, 47), 49, 50]
] += 1
_SIGMOID[[54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255]] += 1


@tflite_op("ABS", when=lambda call: call.kinds() in _INTEGERS)
def absolute(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """`AbsEvalQuantized`."""
    source, (result,) = call.input(0), call.outputs
    x = widened(operands[0], source.zero_point)
    magnitude = emit("abs", [x], shape_of(x), "i32")
    if source.scale == result.scale:
        return [narrowed(magnitude, result.kind, result.zero_point)]
    return [scaled(magnitude, [quotient(1, source.scale, result.scale)], result.kind, result.zero_point)]


@tflite_op("QUANTIZE", when=lambda call: call.kinds()[0] == "f32" and call.kinds()[1] in _LIMITS)
def quantize(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """`AffineQuantize`: half a step is rounded away from 0, and what exceeds the range saturates.

    What LiteRT divides by the scale is multiplied by its inverse here.
    """
    (x,), (result,) = operands, call.outputs
    shape = shape_of(x)
    number = partial(_number, len(shape))
    real = mul(x, number(quotient(1, 1, result.scale)), "f32")
    size = emit("abs", [real], shape, "f32")
    whole = emit("floor", [size], shape, "f32")
    rest = emit("sub", [size, whole], shape, "f32")
    up = emit("greater_equal", [rest, number(0.5)], shape, "i1")
    steps = emit("select", [up, emit("add", [whole, number(1)], shape, "f32"), whole], shape, "f32")
    below = emit("greater", [number(0), real], shape, "i1")
    signed = emit(
        "select", [below, emit("negate", [steps, *[zero_point(0, "f32")] * 2], shape, "f32"), steps], shape, "f32"
    )
    stored = clamp(emit("add", [signed, number(result.zero_point)], shape, "f32"), *_LIMITS[result.kind])
    return [emit("cast", [stored], shape, result.kind)]


@tflite_op("GELU", when=lambda call: call.kinds()[0] == "f32" and not call.options["Approximate"])
def gelu(_call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """By the error function, where the converter takes its approximation by tanh."""
    (x,), shape = operands, shape_of(operands[0])
    number = partial(_number, len(shape))
    erf = emit("erf", [mul(x, number(2**-0.5), "f32")], shape, "f32")
    return [mul(mul(x, number(0.5), "f32"), emit("add", [erf, number(1)], shape, "f32"), "f32")]


@tflite_op(*_COMPARISONS, "NOT_EQUAL", when=lambda call: call.kinds()[0] == "i8")
def compare(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """`ComparisonsQuantized`: both in units of 2^-8 of 1."""
    values, given = iter(operands), (call.input(0), call.input(1))
    a, b = (_comparable(next(values) if one.data is None else constant(one.data), one) for one in given)
    rank = max(len(shape_of(a)), len(shape_of(b)))
    a, b = (reshape(one, (*[1] * (rank - len(shape_of(one))), *shape_of(one))) for one in (a, b))
    shape = np.broadcast_shapes(shape_of(a), shape_of(b))
    name, swapped = _COMPARISONS.get(call.op, ("equal", False))
    holds = emit(name, [b, a] if swapped else [a, b], shape, "i1")
    return [emit("logical_not", [holds], shape, "i1") if call.op == "NOT_EQUAL" else holds]


def _number(rank: int, value: float) -> ir.Value:
    return constant(np.full([1] * rank, value, np.float32))


def _comparable(x: ir.Value, tensor: FileTensor) -> ir.Value:
    wide = binary("logical_left_shift", widened(x, tensor.zero_point), _BITS_TO_COMPARE)
    return scaled(wide, [tensor.scale])


@tflite_op("LOGISTIC", when=lambda call: call.kinds() == ("i16", "i16"))
def logistic(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """1 / (1 + exp(-x)) in units of 2^-15, by a table of |x| with 9 bits between its entries."""
    x = _for_table(operands[0], call, (0,))
    above = _interpolated(x, 9, 0x7FFF << 10)
    below = binary("sub", constant(np.full([1] * len(shape_of(x)), (1 << 25) - 1, np.int32)), above)
    result = binary("add", selected(("greater", x, -1), above, below), 1 << 9)
    return [narrowed(binary("arithmetic_right_shift", result, 10, round=False), "i16")]


@tflite_op("TANH", when=lambda call: call.kinds() == ("i16", "i16"))
def tanh(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """2 / (1 + exp(-2 x)) - 1 in units of 2^-15, by the same table."""
    x = _for_table(operands[0], call, (0, 1))
    above = binary("sub", _interpolated(x, 8, 0xFFFF << 8), 1 << 23)
    below = binary("sub", product(above, -1), 1)
    result = binary("add", selected(("greater", x, -1), above, below), 1 << 7)
    return [narrowed(binary("arithmetic_right_shift", result, 8, round=False), "i16")]


def _for_table(x: ir.Value, call: Call, shifts: Sequence[int]) -> ir.Value:
    """An int16 in units of 1 / (3 * 2^12), as i32: what `TanhPrepare` and `SigmoidPrepare` choose.

    Args:
        shifts: those by which a scale that is a power of 2 may exceed 2^-12.
    """
    scale = call.input(0).scale
    wide = widened(x)
    shift = round(np.log2(scale)) + 12
    if scale == 2.0 ** (shift - 12) and shift in shifts:
        return product(wide, 3 << shift)
    factor, shift = scale * 4096 * 3, 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    scaled_up = product(wide, int(factor))
    return binary("arithmetic_right_shift", scaled_up, shift, round=True) if shift else scaled_up


def _interpolated(x: ir.Value, bits: int, last: int) -> ir.Value:
    """The sigmoid of |x| 2^-bits / 24 in units of 2^-(16 + bits).

    Args:
        last: what holds from the last entry on.
    """
    shape = shape_of(x)
    size = binary("minimum", emit("abs", [x], shape, "i32"), (_ENTRIES - 1) << bits)
    index = binary("arithmetic_right_shift", size, bits, round=False)
    at = narrowed(binary("sub", binary("logical_left_shift", index, 7), 1 << 15), "i16")
    rest = binary("bitwise_and", size, (1 << bits) - 1)
    entries = np.append(_SIGMOID[:-1], last >> bits) - 2**15
    steps = np.append(np.diff(_SIGMOID), 0)
    base, step = (emit("table", [at, constant(_padded(one))], shape, "i32") for one in (entries, steps))
    base = binary("add", binary("logical_left_shift", base, bits - 7), 2**15 << bits)
    return binary("add", base, product(rest, binary("arithmetic_right_shift", step, 7, round=False)))


def _padded(entries: np.ndarray) -> np.ndarray:
    """A table of int16 of which only the entries below the middle are looked up."""
    return np.concatenate([entries, np.zeros(513 - len(entries))]).astype(np.int16)
