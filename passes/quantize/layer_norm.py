"""Layer normalization and RMSNorm in integers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tosaic.passes.quantize.composites import ONE, binary, composite_of, integer, reciprocal_root
from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize, scale_by, widen
from tosaic.passes.quantize.quantization import float_constant, quantized_view
from tosaic.support.attributes import float_of, int_of
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import emit, mul, rescale

_STEPS = {"i8": 128, "i16": 1}  # of x's unit, in which x and x - mean fit i16: |x - mean| <= 255 of i8
_FACTOR_BITS = 15  # of a channel's factor, so that RESCALE takes it for sums of 48 bits too, as NPUs make them
_MOST_UNITS = 2.0**29  # of a bias; a channel that is smaller beside its bias cannot be seen there


@lowers("func.call")
def layer_norm(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension.

    Every full-sized value is i16. The reciprocal of the root is a power of two, with which the deviations fill i16
    whatever their size, times a mantissa.
    """
    composite = composite_of(op, "layer_norm")
    given = _operands(op, composite)
    if composite is None or given is None or given.storage != "i8":
        return None
    weight, bias = given.vectors
    # The squared deviations of n values in a range of 255 sum to at most n * 127.5**2 (Popoviciu 1935).
    shift = _square_shift(given, 127.5)
    if shift is None:
        return None
    return _by_root(_deviation(given), given, shift, weight, bias, out)


@lowers("func.call")
def rms_norm(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """x / sqrt(mean of x^2 + epsilon) * weight over the last dimension, as `layer_norm` computes it."""
    given = _operands(op, composite_of(op, "rms_norm"))
    if given is None:
        return None
    shift = _square_shift(given, {"i8": 128, "i16": 32768}[given.storage] + abs(given.point))
    if shift is None:
        return None
    centered = given.x if given.storage == "i16" else scale_by(given.x, "i16", [float(given.step)], given.point)
    return _by_root(centered, given, shift, given.vectors[0], np.zeros(1, np.float32), out)


class _Operands(NamedTuple):
    """What a composite normalizes over the last dimension: i8, or i16 of zero point 0. `epsilon` is in squares of x's
    unit."""

    x: ir.Value
    storage: str
    point: int
    size: int
    epsilon: float
    vectors: list[np.ndarray]

    @property
    def step(self) -> int:
        """How many parts x's unit has in what is squared."""
        return _STEPS[self.storage]


def _operands(op: ir.Operation, composite: ir.Operation | None) -> _Operands | None:
    view = quantized_view(op.operands[0]) if composite is not None else None
    if composite is None or view is None or view[1].storage not in _STEPS:
        return None
    x, quantization = view
    vectors = [values for operand in list(op.operands)[1:] if (values := float_constant(operand)) is not None]
    if len(vectors) != len(op.operands) - 1 or int_of(composite, "tosaic.axis") != len(shape_of(x)) - 1:
        return None
    epsilon = float_of(composite, "tosaic.epsilon") / quantization.scale**2
    return _Operands(x, quantization.storage, quantization.zero_point, shape_of(x)[-1], epsilon, vectors)


def _by_root(
    deviation: ir.Value, given: _Operands, shift: int, weight: np.ndarray, bias: np.ndarray, out: Quantization
) -> ir.Value:
    """Deviations in parts of x's unit by the root of the mean of their squares and epsilon, times weight, plus bias."""
    shape, size, epsilon = shape_of(deviation), given.size, given.epsilon
    axis = len(shape) - 1
    squares = mul(deviation, deviation, "i32")
    if shift:  # by 30 alone, RESCALE takes what is smaller than 2**29 (TOSA 1.0, apply_scale_32)
        squares = rescale(squares, "i32", [1 << 30], [30 + shift])
    total = emit("reduce_sum", [squares], [*shape[:-1], 1], "i32", axis=axis)
    offset = max(2, round(epsilon * size * given.step**2 / 2**shift))  # the 2**half is then below 2**15
    mantissa, half = reciprocal_root(binary("add", total, integer(offset, len(shape))))
    # No deviation is above the root of the sum of all squares, which 2**half brings below 2**((31 + shift) / 2):
    # that is scaled to 2**15. Times the mantissa it is the deviation by that root, in 1/ONE.
    power = rescale(binary("logical_left_shift", integer(1, len(shape)), half), "i16", [1 << 30], [30])
    filled = scale_by(mul(deviation, power, "i32"), "i16", [2.0 ** (-(shift + 1) / 2)])
    product = mul(filled, mantissa, "i32")
    if (weight == 1).all() and not bias.any():
        return requantize(product, [math.sqrt(size) / ONE / 2.0**14], out)
    normal = rescale(product, "i16", [1 << 30], [44])
    return _affine(normal, math.sqrt(size) / ONE, weight, bias, out)


def _deviation(given: _Operands) -> ir.Value:
    """x - mean in parts of x's unit, as i16."""
    x, point, step, shape = given.x, given.point, given.step, shape_of(given.x)
    total = emit("reduce_sum", [widen(x, point)], [*shape[:-1], 1], "i32", axis=len(shape) - 1)
    fine, mean = scale_by(x, "i16", [float(step)], point), scale_by(total, "i16", [step / given.size])
    return rescale(binary("sub", widen(fine, 0), widen(mean, 0)), "i16", [1 << 30], [30])


def _affine(normal: ir.Value, unit: float, weight: np.ndarray, bias: np.ndarray, out: Quantization) -> ir.Value:
    """normal * unit * weight + bias: of each channel the sign, a bias in the channel's own unit, and one RESCALE."""
    shape = shape_of(normal)
    weight, bias = (np.broadcast_to(values.reshape(-1), shape[-1:]) for values in (weight, bias))
    factors = np.maximum(np.abs(weight) * unit, np.abs(bias) / _MOST_UNITS) / out.scale
    mantissas, exponents = np.frexp(np.where(factors, factors, 1 / _MOST_UNITS))
    units = out.scale * np.ldexp(np.rint(mantissas * 2.0**_FACTOR_BITS), exponents - _FACTOR_BITS)
    signs, offsets = np.rint(weight * unit / units), np.rint(bias / units)
    total = widen(normal, 0) if (signs == 1).all() else mul(normal, _row(signs, np.int16, len(shape)), "i32")
    if offsets.any():
        total = binary("add", total, _row(offsets, np.int32, len(shape)))
    return requantize(total, units.tolist(), out)


def _row(values: np.ndarray, kind: type[np.signedinteger], rank: int) -> ir.Value:
    """Whole values along the last of `rank` dimensions."""
    return constant(values.astype(kind).reshape([1] * (rank - 1) + [-1]))


def _square_shift(given: _Operands, farthest: float) -> int | None:
    """The fewest bits to drop from each square so that their sum and epsilon stay below 2**31; None beyond reason.

    One unit is left for rounding each value, and half a unit for each square.

    Args:
        farthest: the root of the most that the mean of the squares may be, in x's unit.
    """
    for shift in range(16):
        squares = (farthest * given.step + 1) ** 2 + given.epsilon * given.step**2
        if given.size * (squares / 2**shift + 0.5) < 2**31 - 2:
            return shift
    return None
