"""Layer normalization in integers."""

from __future__ import annotations

import math

import numpy as np

from tosaic.passes.quantize.composites import ONE, binary, composite_of, integer, reciprocal_root
from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize, scale_by, widen
from tosaic.passes.quantize.quantization import float_constant, quantized_view
from tosaic.support.attributes import float_of, int_of
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import emit, mul, rescale

_STEP = 128  # x - mean is held in 1/128 of x's unit: |x - mean| <= 255 fits i16
_FACTOR_BITS = 15  # of a channel's factor, so that RESCALE takes it for sums of 48 bits too, as NPUs make them
_MOST_UNITS = 2.0**29  # of a bias; a channel that is smaller beside its bias cannot be seen there


@lowers("func.call")
def layer_norm(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension.

    Every full-sized value is i16. The reciprocal of the root is a power of two, with which the deviations fill i16
    whatever their size, times a mantissa.
    """
    composite = composite_of(op, "layer_norm")
    view = quantized_view(op.operands[0]) if composite is not None else None
    if composite is None or view is None or view[1].storage != "i8":
        return None
    x, quantization = view
    weight, bias = (float_constant(operand) for operand in list(op.operands)[1:3])
    axis, shape = int_of(composite, "tosaic.axis"), shape_of(x)
    epsilon = float_of(composite, "tosaic.epsilon") / quantization.scale**2
    size, point = shape[-1], quantization.zero_point
    shift = _square_shift(size, epsilon)
    if weight is None or bias is None or axis != len(shape) - 1 or shift is None:
        return None
    deviation = _deviation(x, point, size)
    squares = mul(deviation, deviation, "i32")
    if shift:  # by 30 alone, RESCALE takes what is smaller than 2**29 (TOSA 1.0, apply_scale_32)
        squares = rescale(squares, "i32", [1 << 30], [30 + shift])
    total = emit("reduce_sum", [squares], [*shape[:-1], 1], "i32", axis=axis)
    offset = max(2, round(epsilon * size * _STEP**2 / 2**shift))  # the 2**half is then below 2**15
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


def _deviation(x: ir.Value, point: int, size: int) -> ir.Value:
    """x - mean in 1/_STEP, as i16."""
    shape = shape_of(x)
    total = emit("reduce_sum", [widen(x, point)], [*shape[:-1], 1], "i32", axis=len(shape) - 1)
    fine, mean = scale_by(x, "i16", [float(_STEP)], point), scale_by(total, "i16", [_STEP / size])
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


def _square_shift(size: int, epsilon: float) -> int | None:
    """The fewest bits to drop from each square so that their sum and epsilon stay below 2**31; None beyond reason.

    The squared deviations of n values in a range of 255 sum to at most n * 127.5**2 (Popoviciu 1935). One unit is
    left for rounding each value, and half a unit for each square.
    """
    for shift in range(16):
        if size * (((127.5 * _STEP + 1) ** 2 + epsilon * _STEP**2) / 2**shift + 0.5) < 2**31 - 2:
            return shift
    return None
