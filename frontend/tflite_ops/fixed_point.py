"""Arithmetic of LiteRT's integer kernels, and of the library gemmlowp below them, on i32 tensors.

Numbers of 16 bits are held in i32. Names and constants of the polynomials are those of gemmlowp's `fixedpoint.h`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.tosa_builder import emit, rescale

LEAST, MOST = -(2**15), 2**15 - 1
_ONE = MOST  # of no integer bits
_NEWTON_STEPS, _ONE_OF_TWO = 3, 1 << 13  # the 1 of two integer bits
_EXPONENTIALS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}


def quantize_multiplier(real: float) -> tuple[int, int]:
    """A factor as multiplier and shift of a RESCALE: `QuantizeMultiplier` of LiteRT."""
    fraction, exponent = math.frexp(real)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = multiplier // 2, exponent + 1
    return (0, 31) if exponent < -31 else (multiplier, 31 - exponent)


def quotient(product: float, factor: float, divisor: float) -> float:
    """product * factor / divisor as C computes it with `float`."""
    return float(np.float32(product) * np.float32(factor) / np.float32(divisor))


def scaled(x: ir.Value, factors: Sequence[float], kind: str = "i32", output_zp: int = 0) -> ir.Value:
    """`MultiplyByQuantizedMultiplier`, which rounds twice, saturated to `kind`; a factor for all or each channel."""
    multipliers, shifts = zip(*map(quantize_multiplier, factors), strict=True)
    return rescale(x, kind, multipliers, shifts, 0, output_zp, rounding="DOUBLE_ROUND")


def narrowed(x: ir.Value, kind: str, output_zp: int = 0) -> ir.Value:
    """i32 in another type, saturated."""
    return rescale(x, kind, [1 << 30], [30], 0, output_zp)


def widened(x: ir.Value, input_zp: int = 0) -> ir.Value:
    """Integers less their zero point as i32."""
    if not input_zp:
        return emit("cast", [x], shape_of(x), "i32")
    return rescale(x, "i32", [1 << 30], [30], input_zp)


def binary(name: str, a: ir.Value, b: ir.Value | int, **attributes: object) -> ir.Value:
    """A pointwise op on i32, whose second operand may be a number."""
    other = constant(np.full([1] * len(shape_of(a)), b, np.int32)) if isinstance(b, int) else b
    return emit(name, [a, other], np.broadcast_shapes(shape_of(a), shape_of(other)), "i32", **attributes)


def product(a: ir.Value, b: ir.Value | int, shift: int = 0) -> ir.Value:
    """a b 2^-shift of i32 tensors; half a step is rounded up."""
    other = constant(np.full([1] * len(shape_of(a)), b, np.int32)) if isinstance(b, int) else b
    shape = np.broadcast_shapes(shape_of(a), shape_of(other))
    return emit("mul", [a, other, constant(np.array([shift], np.int8))], shape, "i32")


def divided(x: ir.Value, bits: int) -> ir.Value:
    """`RoundingDivideByPOT`: x 2^-bits; half a step is rounded away from 0."""
    if not bits:
        return x
    sign = binary("arithmetic_right_shift", x, 31, round=False)
    return binary("arithmetic_right_shift", binary("add", x, sign), bits, round=True)


def saturated(x: ir.Value) -> ir.Value:
    """To 16 bits."""
    return binary("maximum", binary("minimum", x, MOST), LEAST)


def selected(condition: tuple[str, ir.Value, int], yes: ir.Value | int, no: ir.Value) -> ir.Value:
    """`yes` where a comparison of an i32 tensor with a number holds."""
    name, x, limit = condition
    ones = [1] * len(shape_of(x))
    holds = emit(name, [x, constant(np.full(ones, limit, np.int32))], shape_of(x), "i1")
    chosen = constant(np.full(ones, yes, np.int32)) if isinstance(yes, int) else yes
    return emit("select", [holds, chosen, no], shape_of(x), "i32")


def logistic(x: ir.Value, integer_bits: int) -> ir.Value:
    """1 / (1 + exp(-x)) in units of 2^-15."""
    above = saturated(binary("logical_left_shift", _reciprocal(_exponential(_negative(x), integer_bits)), 1))
    below = binary("sub", constant(np.full([1] * len(shape_of(x)), _ONE, np.int32)), above)
    return selected(("equal", x, 0), 1 << 14, selected(("greater", x, 0), above, below))


def tanh(x: ir.Value, integer_bits: int) -> ir.Value:
    """In units of 2^-15."""
    y = _reciprocal(_exponential(_negative(x), integer_bits + 1))
    above = saturated(binary("logical_left_shift", binary("sub", y, _ONE_OF_TWO), 2))
    below = product(above, -1)
    return selected(("equal", x, 0), 0, selected(("greater", x, 0), above, below))


def _negative(x: ir.Value) -> ir.Value:
    """-|x|, which 16 bits hold of every x."""
    return binary("minimum", x, product(x, -1))


def _exponential(x: ir.Value, integer_bits: int) -> ir.Value:
    """`exp_on_negative_values`, in units of 2^-15."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    within = binary("sub", binary("bitwise_and", x, quarter - 1), quarter)
    result = _exponential_near_0(binary("logical_left_shift", within, integer_bits) if integer_bits else within)
    rest = binary("sub", within, x)
    for exponent, factor in _EXPONENTIALS.items():
        if integer_bits > exponent:
            bit = binary("bitwise_and", rest, 1 << (fraction + exponent))
            result = selected(("greater", bit, 0), product(result, _short(factor), 15), result)
    if integer_bits > 5:
        result = selected(("greater", x, -(32 << fraction) - 1), result, _zeros(result))
    return selected(("equal", x, 0), _ONE, result)


def _exponential_near_0(x: ir.Value) -> ir.Value:
    """`exp_on_interval_between_negative_one_quarter_and_0_excl`: a Taylor series around -1/8."""
    x = binary("add", x, 1 << 12)
    x2 = product(x, x, 15)
    x3, x4 = product(x2, x, 15), product(x2, x2, 15)
    cubic = product(binary("add", divided(x4, 2), x3), _short(715827883), 15)
    series = binary("add", x, divided(binary("add", cubic, x2), 1))
    middle = _short(1895147668)
    return saturated(binary("add", product(series, middle, 15), middle))


def _reciprocal(x: ir.Value) -> ir.Value:
    """2 / (1 + x) for x of 0 to 1, by Newton's method, in units of 2^-13."""
    half = binary("arithmetic_right_shift", binary("add", x, _ONE + 1), 1, round=False)
    y = binary("add", product(half, _short(-1010580540), 15), _short(1515870810))
    for _ in range(_NEWTON_STEPS):
        missing = product(binary("sub", product(half, y, 15), _ONE_OF_TWO), -1)
        y = binary("add", y, saturated(binary("logical_left_shift", product(y, missing, 15), 2)))
    return y


def _short(value: int) -> int:
    """A constant of 32 bits in 16."""
    return (value + (1 << 15)) >> 16


def _zeros(like: ir.Value) -> ir.Value:
    return constant(np.zeros([1] * len(shape_of(like)), np.int32))
