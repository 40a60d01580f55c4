"""Identities of values, and the constants that they take; `derived` has the conditions under which they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

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
    """Bounds that lie within a byte, or a half, saturate, too."""
    match v:
        case Op("clamp", (Op("sat8" | "sat16" as narrow, (value,)), Access() as low, Access() as upper)):
            names = ("least", "most") if narrow == "sat8" else ("least_half", "most_half")
            least, most = Access(names[0], low.index), Access(names[1], upper.index)
            return Op("min", (Op("max", (value, least)), most)), {names[0]: (low,), names[1]: (upper,)}
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


def _half_bounds(v: Op) -> Change | None:
    """Bounds of a half, one after the other."""
    match v:
        case Op("clamp", (value, Access() as low, Access() as upper)):
            least, most = Access("least_half", low.index), Access("most_half", upper.index)
            return Op("min", (Op("max", (value, least)), most)), {"least_half": (low,), "most_half": (upper,)}
    return None


def _half_floor(v: Op) -> Change | None:
    """Of bounds of a half, the lower one, where nothing is above the other."""
    match v:
        case Op("clamp", (Op("sat16") as value, Access() as low, Access() as upper)):
            least = Access("least_half", low.index)
            return Op("max", (value, least)), {"least_half": (low,), "nothing_above": (upper,)}
    return None


def _half_ceiling(v: Op) -> Change | None:
    """Of bounds of a half, the upper one, where nothing is below the other."""
    match v:
        case Op("clamp", (Op("sat16") as value, Access() as low, Access() as upper)):
            most = Access("most_half", upper.index)
            return Op("min", (value, most)), {"nothing_below": (low,), "most_half": (upper,)}
    return None


def _nearest(v: Op) -> Change | None:
    """A rounding shift by 31."""
    match v:
        case Op("scale32", (value, Access() as multiplier, Access() as shift)):
            whole = Access("whole", multiplier.index)
            return Op("round_doubled_high", (value, whole)), {"whole": (multiplier, shift)}
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
        case Op("add", (value, Access(index=()) as zero)):
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


def _sixteenth(v: Op) -> Change | None:
    """A bias is 16 times another, which takes fewer bits."""
    match v:
        case Op("add", (value, Access("bias") as bias)):
            return Op("add", (value, Op("mul", (Access("sixteenth", bias.index), 16)))), {"sixteenth": (bias,)}
    return None


def _unbiased(v: Op) -> Change | None:
    """A bias of 0 is none."""
    match v:
        case Op("add", (value, Access("bias") as bias)):
            return value, {"unbiased": (bias,)}
    return None


def _units(v: Op) -> Change | None:
    """A multiplier is a number of units, which takes fewer bits."""
    match v:
        case Op("round_high_add", (value, Access("whole") as whole, zero)):
            multiplier = Op("mul", (Access("units", whole.index), Access("unit")))
            return Op("round_high_add", (value, multiplier, zero)), {"units": (whole,), "unit": (whole,)}
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
    Rule("half_bounds", _half_bounds),
    Rule("half_floor", _half_floor),
    Rule("half_ceiling", _half_ceiling),
    Rule("nearest", _nearest),
    Rule("half_lanes", _half_lanes),
    Rule("indexed", _indexed),
    Rule("nothing_added", _nothing_added),
    Rule("nothing_taken", _nothing_taken),
    Rule("power", _power),
    Rule("sixteenth", _sixteenth),
    Rule("unbiased", _unbiased),
    Rule("units", _units),
)
RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _RULES})
"""Every identity, by name."""
