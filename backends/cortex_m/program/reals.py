"""Floats among the values of pointwise functions: f32, each held as the int32 that has its bits.

So they are given, chosen and stored as integers are. Nothing is simplified: each op rounds once, as TOSA has it (1.0,
section 1.8).
"""

from __future__ import annotations

import numpy as np

from tosaic.backends.cortex_m.program.values import RELATIONS, Value, computed, narrow, number

_BITS = (-(1 << 31), (1 << 31) - 1)


def bits_of(data: np.ndarray) -> np.ndarray:
    """int64 of f32: the integers that hold its bits."""
    return np.asarray(data, np.float32).view(np.int32).astype(np.int64)


def real_number(value: float) -> Value:
    """The same float everywhere."""
    return number(int(bits_of(np.array(value))))


def real(op: str, *operands: Value, numbers: tuple[int, ...] = ()) -> Value:
    """A float that an op computes."""
    return computed(op, operands, *_BITS, numbers)


def real_clamp(a: Value, low: float, high: float, propagates: bool) -> Value:
    """min(max(a, low), high); of what is no number, itself where that `propagates`, else `low`."""
    for op, bound, none in (("real_max", low, -np.inf), ("real_min", high, np.inf)):
        if bound != none or not propagates:
            a = real(op, a, real_number(bound), numbers=(int(propagates),))
    return a


def from_real(a: Value, bits: int) -> Value:
    """The nearest integer of so many bits, half to even, saturated; 0 of what is no number."""
    return narrow(computed("from_real", (a,), *_BITS), bits)


def real_compare(op: str, a: Value, b: Value) -> Value:
    """1 where a is `gt`, `ge` or `eq` b, else 0."""
    return computed("real_compare", (a, b), 0, 1, (RELATIONS.index(op),))
