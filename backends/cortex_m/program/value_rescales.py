"""RESCALE and its parts, as values."""

from __future__ import annotations

import numpy as np

from tosaic.backends.cortex_m.program.values import (
    CHANNEL,
    DENSE_MULTIPLIER,
    INT32,
    Value,
    add,
    array,
    computed,
    fits_int32,
    folded,
    multiply,
    narrow,
    number,
    shift_right,
    trailing_zeros,
)


def multiply_shifted(a: Value, b: Value, shift: int) -> Value | None:
    """a * b >> shift, half rounded up, by VQRDMULH; None where neither has room to be shifted left for it."""
    factor = 1 << 31 - shift
    for value, other in ((a, b), (b, a)):
        if fits_int32(other, factor):
            return _high_half(value, multiply(other, number(factor)), rounding=True)
    return None


def rescale(a: Value, multiplier: np.ndarray, shift: np.ndarray, bits: int) -> Value | None:
    """a * multiplier >> shift, half rounded up (TOSA 1.0, apply_scale_32 with SINGLE_ROUND), for a result of `bits`.

    `multiplier` and `shift` have one element, or one a channel. A power of two is a shift, a whole number a product.
    Else VQRDMULH, which is exact at shift 31, or from shift 32 on VQDMULH and a shift that rounds; below 31 the value
    is shifted left first. None where that may saturate and the result does not.
    """
    if multiplier.size > 1:
        return _rescale_channels(a, multiplier, shift, bits)
    m, s = int(multiplier.item()), int(shift.item())
    if m % (1 << s) == 0:
        return multiply(a, number(m >> s))
    if (odd := m >> trailing_zeros(m)) == 1 or (s > 31 and fits_int32(a, odd)):
        return shift_right(multiply(a, number(odd)), s - trailing_zeros(m), rounding=True)
    left = max(0, 31 - s)
    if not fits_int32(a, 1 << left) and (bits == 32 or m < DENSE_MULTIPLIER):
        return None
    if s > 31:
        return shift_right(_high_half(a, number(m), rounding=False), s - 31, rounding=True)
    return _high_half(_shifted_left(a, left), number(m), rounding=True)


def with_zero_point(a: Value, zero_point: int, bits: int) -> Value:
    """a + zero_point, saturated to so many bits. What a sum rounds off with its shift, it adds before it."""
    if a.op == "shift_round" and a.operands[0].op == "sum":
        (total,), (amount,) = a.operands, a.numbers
        moved = add(total, number(zero_point << amount))
        if (moved.low, moved.high) != INT32:
            return narrow(shift_right(moved, amount, rounding=True), bits)
    if zero_point and a.op != "sum":
        a = narrow(a, 16)
    return narrow(add(a, number(zero_point)), bits)


def _rescale_channels(a: Value, multiplier: np.ndarray, shift: np.ndarray, bits: int) -> Value | None:
    shift = shift.astype(np.int32)
    rounding = bool((shift <= 31).all())
    left = np.maximum(0, (31 if rounding else 32) - shift)
    saturating = not fits_int32(a, 1 << int(left.max()))
    if saturating and (bits == 32 or multiplier.min() < DENSE_MULTIPLIER):
        return None
    if left.any():
        a = computed("shift_by", (a, array(left, {CHANNEL})), *INT32, (0, 0, int(saturating)))
    scaled = _high_half(a, array(multiplier, {CHANNEL}), rounding)
    if rounding:
        return scaled
    return computed("shift_by", (scaled, array(31 - shift - left, {CHANNEL})), *INT32, (0, 1, 0))


def _shifted_left(a: Value, amount: int) -> Value:
    """a << amount, saturated where it does not fit."""
    if fits_int32(a, 1 << amount):
        return multiply(a, number(1 << amount))
    return computed("shift_saturating", (a,), *INT32, (amount,))


def _high_half(a: Value, b: Value, rounding: bool) -> Value:
    half = 1 << 30 if rounding else 0
    ends = [x * y + half >> 31 for x in (a.low, a.high) for y in (b.low, b.high)]
    return folded(
        computed("high_half", (a, b), min(ends), max(ends), (int(rounding),)), lambda x, y: x * y + half >> 31
    )
