"""The constants that identities of values take: how the host computes them, and whether the identity holds for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np


def _round(shift: np.ndarray, zero: np.ndarray) -> np.ndarray | None:
    """v * m / 2^s rounded is floor((floor(v * m / 2^32) + 2^(s - 33)) / 2^(s - 32)) for s >= 33; |v * m| < 2^62 leaves
    2^30 for what is added."""
    if (shift < 33).any() or (shift > 62).any():
        return None
    values = (np.int64(1) << (shift - 33)) + (zero << (shift - 32))
    return values if (np.abs(values) < 1 << 30).all() else None


def _right(shift: np.ndarray) -> np.ndarray | None:
    return None if (shift < 33).any() else shift - 32


def _carried(weights: np.ndarray) -> np.ndarray | None:
    """Pairs of bytes along the last dimension in halves: 256 times the second, and the first."""
    values = weights[..., 0::2] + 256 * weights[..., 1::2]
    return values if (values >= -(1 << 15)).all() else None


def _carried_bias(bias: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
    """The bias of sums that are 256 times too large and have 127 of each first byte on top.

    Inputs are bytes: no sum, and nothing on the way to it, gets larger than 129 times the weights' magnitudes.
    """
    rows = weights.reshape(len(weights), -1)
    largest = 129 * np.abs(rows).sum(axis=1) + np.abs(bias)
    if (largest >= 1 << 23).any():
        return None
    return 256 * bias - 127 * weights[..., 0::2].reshape(len(weights), -1).sum(axis=1)


def _carried_shift(shift: np.ndarray) -> np.ndarray | None:
    return None if (shift > 54).any() else shift + 8


def _factors(weights: np.ndarray, group: int) -> np.ndarray | None:
    """Of each group of weights along the last dimension the number that all are multiples of, -8 to 7 times."""
    values = _grouped(weights, group)
    found = np.maximum(1, np.gcd.reduce(values, axis=-1))
    least, most = values.min(-1), values.max(-1)
    fits = (-8 * found <= least) & (most <= 7 * found) & (found <= 127)
    return found if fits.all() else None


def _nibbles(weights: np.ndarray, group: int, lanes: int) -> np.ndarray | None:
    """The multiples of `_factors`, twice `lanes` of them in so many bytes: below, the first ones, above, the others."""
    factors = _factors(weights, group)
    if factors is None:
        return None
    values = _grouped(weights, group) // factors[..., None]
    halves = values.reshape(*weights.shape[:-1], -1, 2, lanes)
    return halves[..., 0, :] & 15 | halves[..., 1, :] * 16


def _grouped(weights: np.ndarray, group: int) -> np.ndarray:
    """Groups along the last dimension, the last one with zeros behind it."""
    depth = weights.shape[-1]
    behind = [(0, 0)] * (weights.ndim - 1) + [(0, -depth % group)]
    return np.pad(weights, behind).reshape(*weights.shape[:-1], -1, group)


def _sixteen(bias: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
    """The bias of sums that are 16 times too large; inputs are bytes."""
    largest = 129 * np.abs(weights.reshape(len(weights), -1)).sum(axis=1) + np.abs(bias)
    return None if (largest >= 1 << 27).any() else 16 * bias


def _sixteenth(bias: np.ndarray) -> np.ndarray | None:
    return None if (bias % 16).any() else bias // 16


def _sixteen_shift(shift: np.ndarray) -> np.ndarray | None:
    return None if (shift > 58).any() else shift + 4


def _down(shift: np.ndarray) -> np.ndarray | None:
    """What is left of a shift when 31 bits are gone, to the right; rounding needs one."""
    return None if (shift < 32).any() or (shift > 62).any() else 31 - shift


def _whole(multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray | None:
    """The multiplier to a shift of 31."""
    rest = np.int64(1) << np.maximum(shift - 31, 0)
    return None if (shift < 31).any() or (multiplier % rest).any() else multiplier // rest


def _unit(whole: np.ndarray) -> np.ndarray:
    """The greatest number of which all are multiples."""
    return np.maximum(1, np.gcd.reduce(whole.ravel()))


def _left(shift: np.ndarray) -> np.ndarray | None:
    """How far values are shifted up so that 32 bits of a shift are left; the specification promises them room."""
    return None if (shift < 2).any() else np.maximum(0, 32 - shift)


def _rest(shift: np.ndarray) -> np.ndarray | None:
    return None if (shift > 62).any() else 31 - np.maximum(shift, 32)


def _rolled(table: np.ndarray) -> np.ndarray | None:
    return np.roll(table, 128) if table.shape == (256,) else None


def _byte(value: np.ndarray) -> np.ndarray | None:
    return value if ((value >= -128) & (value < 128)).all() else None


def _half_word(value: np.ndarray) -> np.ndarray | None:
    return value if ((value >= -1 << 15) & (value < 1 << 15)).all() else None


def _nothing(values: np.ndarray) -> np.ndarray | None:
    return None if values.any() else values


def _fits(
    weights: np.ndarray, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray, *zeros: np.ndarray
) -> np.ndarray | None:
    """The bias of sums that are numbers of 16 bits when they are scaled, and when a zero point is added; inputs are
    bytes."""
    rows, zero = weights.reshape(*bias.shape, -1), np.array([0, *zeros], np.int64)
    ends = [bias + np.minimum(-128 * rows, 127 * rows).sum(-1), bias + np.maximum(-128 * rows, 127 * rows).sum(-1)]
    return bias if _scaled_fit(ends, multiplier, shift, zero) else None


def _range_fits(multiplier: np.ndarray, shift: np.ndarray, *others: np.ndarray) -> np.ndarray | None:
    """The multiplier of sums that fit as above; the last two of `others` are the least and the greatest one."""
    *zeros, low, high = others
    ends = [np.broadcast_to(end, multiplier.shape).astype(np.int64) for end in (low, high)]
    return multiplier if _scaled_fit(ends, multiplier, shift, np.array([0, *zeros], np.int64)) else None


def _scaled_fit(ends: Sequence[np.ndarray], multiplier: np.ndarray, shift: np.ndarray, zero: np.ndarray) -> bool:
    """Whether the ends of sums are numbers of 16 bits when they are scaled, and when a zero point is added."""
    if any((np.abs(end) >= 1 << 31).any() for end in ends) or (shift < 1).any():
        return False
    scaled = [(end * multiplier + (np.int64(1) << (shift - 1)) >> shift)[..., None] + zero for end in ends]
    return all(_half_word(each) is not None for each in scaled)


def _less(multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray | None:
    """A shift without that of a multiplier 2^n, to the right."""
    exponent = np.frexp(multiplier.astype(np.float64))[1] - 1
    return None if (multiplier != np.int64(1) << exponent).any() or (shift < exponent).any() else exponent - shift


def _half(offset: np.ndarray, low: int, high: int) -> np.ndarray | None:
    """An offset that leaves 16 bits of numbers from `low` to `high`."""
    most = 1 << 15
    fits = (low - offset >= -most) & (high - offset < most) & (offset >= -most) & (offset < most)
    return offset if fits.all() else None


def _begins(first: np.ndarray, below: int, above: int) -> np.ndarray | None:
    """A number to which sums of 16 bits from `below` to `above` may be added."""
    most = 1 << 15
    return first if ((first + below >= -most) & (first + above < most)).all() else None


def _same(values: np.ndarray, *bounds: int) -> np.ndarray | None:
    """The one number of a box: `bounds` are its first and last index along each dimension."""
    box = values[tuple(slice(first, last + 1) for first, last in zip(bounds[::2], bounds[1::2], strict=True))]
    return box.ravel()[0] if (box == box.ravel()[0]).all() else None


DERIVED: Mapping[str, Callable[..., np.ndarray | None]] = MappingProxyType(
    {
        "round": _round,
        "right": _right,
        "down": _down,
        "whole": _whole,
        "unit": _unit,
        "units": lambda whole: _byte(whole // _unit(whole)),
        "byte": _byte,
        "left": _left,
        "rest": _rest,
        "rolled": _rolled,
        "least": _byte,
        "most": _byte,
        "zero_half": _byte,
        "least_half": _half_word,
        "most_half": _half_word,
        "half_word": _half_word,
        "nothing_above": lambda upper: upper if (upper >= (1 << 15) - 1).all() else None,
        "nothing_below": lambda low: low if (low <= -1 << 15).all() else None,
        "nothing_added": _nothing,
        "unbiased": _nothing,
        "nothing_taken": _nothing,
        "less": _less,
        "fits": _fits,
        "range_fits": _range_fits,
        "half": _half,
        "interleaved": lambda *values: np.stack(values, axis=-1),
        "negative": lambda values: -values,
        "begins": _begins,
        "same": _same,
        "carried": _carried,
        "carried_bias": _carried_bias,
        "carried_shift": _carried_shift,
        "factors": _factors,
        "nibbles": _nibbles,
        "sixteen": _sixteen,
        "sixteen_shift": _sixteen_shift,
        "sixteenth": _sixteenth,
        "upper_half": lambda: np.array(-16),
    }
)
"""How the host computes new constants, of int64 arrays in the shapes that the program gives them; None where the
identity that they are for does not hold."""
