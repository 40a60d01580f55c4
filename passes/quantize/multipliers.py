"""Real factors as the integer multipliers and shifts of RESCALE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.support.errors import PassError
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import clamp, emit, rescale

_SHIFTS = (2, 62)
# RESCALE by this shift is one instruction of MVE, VQRDMULH; a factor that keeps this many bits there loses less by it
# than any result can show: an int8 of 2**8 steps is off by 2**-11 of one.
_ONE_INSTRUCTION, _ENOUGH_BITS = 31, 19
# So does a multiple of 16 of this size where the result is an int8: sums of weights of four bits, which are 16 times as
# large in kernels for MVE, take one instruction then, too.
_SIXTEEN, _LEAST_FOR_SIXTEEN = 16, 2**20


def multiplier_and_shift(factor: float, bits: int = 31) -> tuple[int, int]:
    """(multiplier, shift) with factor ~ multiplier / 2**shift, multiplier < 2**bits, shift in 2..62 (TOSA 1.0, 1.9).

    The shift is 31 where the multiplier keeps bits enough there.

    Raises:
        PassError: the factor is not positive and finite, or too large for a shift of 2.
    """
    if not (np.isfinite(factor) and factor > 0):
        raise PassError(f"a rescale factor is {factor}", why="factors are positive finite numbers")
    mantissa, exponent = np.frexp(factor)
    multiplier, shift = round(float(mantissa) * 2**bits), bits - int(exponent)
    if multiplier == 2**bits:
        multiplier, shift = multiplier // 2, shift - 1
    if bits == 31 and shift - (bits - _ENOUGH_BITS) <= _ONE_INSTRUCTION <= shift:
        multiplier, shift = round(factor * 2.0**_ONE_INSTRUCTION), _ONE_INSTRUCTION
    if shift > _SHIFTS[1]:
        multiplier, shift = round(multiplier / 2 ** (shift - _SHIFTS[1])), _SHIFTS[1]
    if shift < _SHIFTS[0]:
        raise PassError(f"a rescale factor of {factor:g} is too large for RESCALE",
                        hint="check the scales of the tensors around this op")  # fmt: skip
    return multiplier, shift


def scale_by(x: ir.Value, kind: str, factors: Sequence[float], input_zp: int = 0, output_zp: int = 0) -> ir.Value:
    """RESCALE of `x` to element type `kind` by real factors, one or one per channel of the last dimension."""
    bits = 15 if str(element_type(x)) == "i48" else 31
    pairs = [multiplier_and_shift(factor, bits) for factor in factors]
    if kind == "i8":
        pairs = [_as_sixteenth(*pair) for pair in pairs]
    return rescale(x, kind, [m for m, _ in pairs], [s for _, s in pairs], input_zp, output_zp)


def _as_sixteenth(multiplier: int, shift: int) -> tuple[int, int]:
    """The nearest multiplier that a sum of 16 times the size takes for one instruction; the same where it is small."""
    if shift != _ONE_INSTRUCTION or multiplier < _LEAST_FOR_SIXTEEN:
        return multiplier, shift
    return min(round(multiplier / _SIXTEEN) * _SIXTEEN, 2**31 - _SIXTEEN), shift


def requantize(x: ir.Value, real: Sequence[float], out: Quantization, input_zp: int = 0, largest: int = 0) -> ir.Value:
    """RESCALE of integers whose unit is `real` (one, or one per last-dimension channel) to the quantization `out`.

    By a factor of 1 or more, RESCALE takes what is smaller than 2**(shift - 1). Of i48 it gives no more than i32 (TOSA
    1.0, 1.9). So a sum that can be larger, all of which saturates, is limited first.

    Args:
        largest: the largest magnitude of `x`, where it is known; it must be where `x` is i48.
    """
    factors = [unit / out.scale for unit in real]
    if str(element_type(x)) == "i48" and largest * max(factors) >= 2**31:
        coarse = 2.0 ** max(0, largest.bit_length() - 29)
        x, factors = scale_by(x, "i32", [1 / coarse]), [factor * coarse for factor in factors]
    if str(element_type(x)) == "i32" and max(factors) >= 1:
        limit = 2 ** (min(multiplier_and_shift(factor)[1] for factor in factors) - 1) - 1
        ends = (("minimum", limit), ("maximum", -limit)) if not 0 < largest <= limit else ()
        for name, end in ends:
            bound = constant(np.full([1] * len(shape_of(x)), end, np.int32))
            x = emit(name, [x, bound], shape_of(x), "i32")
    scaled = scale_by(x, out.storage, factors, input_zp, out.zero_point)
    return scaled if out.full_range else clamp(scaled, out.low, out.high)


def widen(x: ir.Value, zero_point: int) -> ir.Value:
    """`x` minus its zero point as i32."""
    return rescale(x, "i32", [1 << 30], [30], input_zp=zero_point)
