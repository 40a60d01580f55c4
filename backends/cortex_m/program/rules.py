"""Identities of values, and the constants that they take, with the conditions under which they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

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
        case Op("sat8", (Op("add", (Op("scale32", (value, multiplier, Access() as shift)), Access() as zero)),)):
            rounded = Op("add", (Op("high", (value, multiplier)), Access("round", shift.index)))
            return Op("sat8", (Op("asr", (rounded, Access("right", shift.index))),)), {
                "round": (shift, zero),
                "right": (shift,),
            }
    return None


RULES: Mapping[str, Rule] = MappingProxyType({"high": Rule("high", _high)})
"""Every identity, by name."""


def _round(shift: int, zero: int) -> int | None:
    if shift < 33:
        return None
    value = (1 << (shift - 33)) + (zero << (shift - 32))
    return value if abs(value) < 1 << 30 else None


def _right(shift: int) -> int | None:
    return shift - 32 if shift >= 33 else None


DERIVED: Mapping[str, Callable[..., int | None]] = MappingProxyType({"round": _round, "right": _right})
"""How the host computes each new constant of an element; None where the identity does not hold.

`round`: v * m / 2^s rounded is floor((floor(v * m / 2^32) + 2^(s - 33)) / 2^(s - 32)) for s >= 33; |v * m| < 2^62
leaves 2^30 for what is added.
"""
