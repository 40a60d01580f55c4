"""Identities of values, and the constants that they take, with the conditions under which they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tosaic.backends.cortex_m.program.affine import Affine
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


def _doubled(v: Op) -> Change | None:
    """Rounding shifts in two floors: of the doubled product's high word, then of the rest, by vectors."""
    match v:
        case Op("scale32", (value, multiplier, Access() as shift)):
            down = Access("down", shift.index)
            return Op("round_shift", (Op("doubled_high", (value, multiplier)), down)), {"down": (shift,)}
    return None


def _lanes(v: Op) -> Change | None:
    """A saturated byte in a word: shifted up with saturation, then down."""
    match v:
        case Op("sat8", (value,)):
            return Op("asr", (Op("sat_shl", (value, 24)), 24)), {}
    return None


def _bounded(v: Op) -> Change | None:
    """Bounds that lie within a byte saturate, too."""
    match v:
        case Op("clamp", (Op("sat8", (value,)), Access() as low, Access() as upper)):
            least, most = Access("least", low.index), Access("most", upper.index)
            return Op("min", (Op("max", (value, least)), most)), {"least": (low,), "most": (upper,)}
    return None


def _rounded(v: Op) -> Change | None:
    """A rounding shift by 31, and what is added to it, as one operation."""
    match v:
        case Op("add", (Op("scale32", (value, Access() as multiplier, shift)), Access() as zero)):
            whole = Access("whole", multiplier.index)
            return Op("round_high_add", (value, whole, zero)), {"whole": (multiplier, shift)}
    return None


def _halves(v: Op) -> Change | None:
    """A byte saturated in two steps."""
    match v:
        case Op("sat8", (Op(name) as value,)) if name != "sat16":
            return Op("sat8", (Op("sat16", (value,)),)), {}
    return None


def _narrow(v: Op) -> Change | None:
    """A byte saturated in two steps, with the zero point added between them."""
    match v:
        case Op("sat8", (Op("add", (value, Access() as zero)),)):
            half = Op("low_half", (Access("zero_half", zero.index),))
            return Op("sat8", (Op("sat16", (Op("add", (Op("sat16", (value,)), half)),)),)), {"zero_half": (zero,)}
    return None


def _shifted(v: Op) -> Change | None:
    """As `doubled`, of shifts that leave less than 31 bits to go: these shift up first."""
    match v:
        case Op("scale32", (value, multiplier, Access() as shift)):
            left, rest = Access("left", shift.index), Access("rest", shift.index)
            high = Op("doubled_high", (Op("sat_shl", (value, left)), multiplier))
            return Op("round_shift", (high, rest)), {"left": (shift,), "rest": (shift,)}
    return None


def _bounds(v: Op) -> Change | None:
    """Bounds of a byte, one after the other."""
    match v:
        case Op("clamp", (value, Access() as low, Access() as upper)):
            least, most = Access("least", low.index), Access("most", upper.index)
            return Op("min", (Op("max", (value, least)), most)), {"least": (low,), "most": (upper,)}
    return None


def _half_lanes(v: Op) -> Change | None:
    """A saturated half of a word: shifted up with saturation, then down."""
    match v:
        case Op("sat16", (value,)):
            return Op("asr", (Op("sat_shl", (value, 16)), 16)), {}
    return None


def _indexed(v: Op) -> Change | None:
    """A table in the order of its index as a byte without a sign."""
    match v:
        case Op("lookup", (Access(index=(Affine(terms=(), const=128),)) as table, value)):
            rolled = Access("rolled", (Affine(),))
            return Op("lookup", (rolled, Op("bit_and", (value, 255)))), {"rolled": (table,)}
    return None


def _nothing_added(v: Op) -> Change | None:
    """A zero point of 0 is none."""
    match v:
        case Op("add", (value, Access() as zero)):
            return value, {"nothing_added": (zero,)}
    return None


def _nothing_taken(v: Op) -> Change | None:
    """An offset of 0 is none."""
    match v:
        case Op("sub", (value, Access() as offset)):
            return value, {"nothing_taken": (offset,)}
    return None


def _power(v: Op) -> Change | None:
    """A multiplier that is a power of two is a shift."""
    match v:
        case Op("scale32", (value, Access() as multiplier, Access() as shift)):
            return Op("round_shift", (value, Access("less", shift.index))), {"less": (multiplier, shift)}
    return None


_RULES = (
    Rule("high", _high),
    Rule("doubled", _doubled),
    Rule("lanes", _lanes),
    Rule("bounded", _bounded),
    Rule("narrow", _narrow),
    Rule("rounded", _rounded),
    Rule("halves", _halves),
    Rule("shifted", _shifted),
    Rule("bounds", _bounds),
    Rule("half_lanes", _half_lanes),
    Rule("indexed", _indexed),
    Rule("nothing_added", _nothing_added),
    Rule("nothing_taken", _nothing_taken),
    Rule("power", _power),
)
RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _RULES})
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


def _down(shift: np.ndarray) -> np.ndarray | None:
    """What is left of a shift when 31 bits are gone, to the right; rounding needs one."""
    return None if (shift < 32).any() or (shift > 62).any() else 31 - shift


def _whole(multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray | None:
    """The multiplier to a shift of 31."""
    rest = np.int64(1) << np.maximum(shift - 31, 0)
    return None if (shift < 31).any() or (multiplier % rest).any() else multiplier // rest


def _left(shift: np.ndarray) -> np.ndarray | None:
    """How far values are shifted up so that 32 bits of a shift are left; the specification promises them room."""
    return None if (shift < 2).any() else np.maximum(0, 32 - shift)


def _rest(shift: np.ndarray) -> np.ndarray | None:
    return None if (shift > 62).any() else 31 - np.maximum(shift, 32)


def _rolled(table: np.ndarray) -> np.ndarray | None:
    return np.roll(table, 128) if table.shape == (256,) else None


def _byte(value: np.ndarray) -> np.ndarray | None:
    return value if ((value >= -128) & (value < 128)).all() else None


def _nothing(values: np.ndarray) -> np.ndarray | None:
    return None if values.any() else values


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
        "left": _left,
        "rest": _rest,
        "rolled": _rolled,
        "least": _byte,
        "most": _byte,
        "zero_half": _byte,
        "nothing_added": _nothing,
        "nothing_taken": _nothing,
        "less": _less,
        "half": _half,
        "negative": lambda values: -values,
        "begins": _begins,
        "same": _same,
        "carried": _carried,
        "carried_bias": _carried_bias,
        "carried_shift": _carried_shift,
    }
)
"""How the host computes new constants, of int64 arrays in the shapes that the program gives them; None where the
identity that they are for does not hold."""
