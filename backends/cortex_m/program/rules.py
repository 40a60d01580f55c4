"""Identities of values, and the constants that they take, with the conditions under which they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tosaic.backends.cortex_m.program.tree import Access, Op, Value

Change = tuple[Value, Mapping[str, Sequence[Value]]]


@dataclass(frozen=True)
class Rule:
    """An identity.

    Args:
        change: the new value, and by name the constants it takes, each of the values it is derived from; None where the
            rule does not apply.
    """

    name: str
    change: Callable[[Op], Change | None]


def _high(v: Op) -> Change | None:
    """Rounding shifts in two floors: of the product's high word, then of the rest, into which the zero point goes."""
    match v:
        case Op(
            "sat8" | "sat16" as narrow,
            (Op("add", (Op("scale32", (value, multiplier, Access() as shift)), Access() as zero)),),
        ):
            rounded = Op("add", (Op("high", (value, multiplier)), Access("round", shift.index)))
            return Op(narrow, (Op("asr", (rounded, Access("right", shift.index))),)), {
                "round": (shift, zero),
                "right": (shift,),
            }
    return None


RULES: Mapping[str, Rule] = MappingProxyType({"high": Rule("high", _high)})
"""Every identity, by name."""


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


DERIVED: Mapping[str, Callable[..., np.ndarray | None]] = MappingProxyType(
    {
        "round": _round,
        "right": _right,
        "carried": _carried,
        "carried_bias": _carried_bias,
        "carried_shift": _carried_shift,
    }
)
"""How the host computes new constants, of int64 arrays in the shapes that the program gives them; None where the
identity that they are for does not hold."""
