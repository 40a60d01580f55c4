"""The operations of values: what each computes, what it is in C, and what it costs a scalar core."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np


class Operation(NamedTuple):
    """An operation on integers, or on floats.

    Args:
        compute: its value, without limits of width.
        c: an expression of C with `{0}`, `{1}` ... for its arguments.
        instructions: what a core without vectors executes for it, about.
        helper: C that it needs before the kernel.
    """

    compute: Callable[..., float]
    c: str
    instructions: int
    helper: str = ""


def clamped(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def wrapped(value: int) -> int:
    """The int32 of the same 32 bits."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _saturating(bits: int) -> Operation:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    narrow = {8: "sxtb", 16: "sxth"}[bits]
    helper = f"""\
INLINE int32_t sat{bits}(int32_t v) {{
#if __ARM_ARCH_ISA_THUMB == 1
  int32_t narrow;
  __asm__("{narrow} %0, %1" : "=l"(narrow) : "l"(v));
  return __builtin_expect(narrow == v, 1) ? v : v >> 31 ^ {high};
#else
  return v < {low} ? {low} : v > {high} ? {high} : v;
#endif
}}"""
    return Operation(lambda v: clamped(v, low, high), f"sat{bits}({{0}})", 1, helper)


def _infix(sign: str, compute: Callable[..., int], instructions: int = 1) -> Operation:
    return Operation(compute, f"({{0}} {sign} {{1}})", instructions)


def _function(
    name: str, parameters: str, expression: str, instructions: int, compute: Callable[..., int], before: str = ""
) -> Operation:
    """An operation that is a function of C, of int32 parameters; `before` is what it calls."""
    names = parameters.split()
    declared = ", ".join(f"int32_t {each}" for each in names)
    call = f"{name}({', '.join(f'{{{i}}}' for i in range(len(names)))})"
    helper = f"INLINE int32_t {name}({declared}) {{ return {expression}; }}"
    return Operation(compute, call, instructions, "\n".join(filter(None, (before, helper))))


def _shifted(value: int, amount: int, unsigned: bool, rounding: bool) -> int:
    """VSHL and VRSHL: left by an amount, right where it is negative; the result wraps."""
    value = value % (1 << 32) if unsigned else value
    if amount >= 0:
        return wrapped(value << amount)
    half = 1 << (-amount - 1) if rounding else 0
    return wrapped((value + half) >> -amount)


def _shift(name: str, kind: str, rounding: bool) -> Operation:
    """Shifts by a number that is not known before; beyond 31 bits nothing is left but the sign."""
    wide, half = ("int64_t" if kind == "int32_t" else "uint64_t"), " + (1ll << (-n - 1))" if rounding else ""
    right = f"n < -32 ? (int32_t)(({wide})({kind})v >> 32) : (int32_t)((({wide})({kind})v{half}) >> -n)"
    if rounding:
        right = f"n < -32 ? 0 : (int32_t)((({wide})({kind})v{half}) >> -n)"
    text = f"n >= 0 ? (n > 31 ? 0 : (int32_t)((uint32_t)v << n)) : {right}"
    unsigned = kind == "uint32_t"
    return _function(name, "v n", text, 8, lambda v, n: _shifted(v, n, unsigned, rounding))


# Cores without long products take four of 16 bits.
_HIGH32 = """\
INLINE int32_t high32(int32_t v, int32_t m) {
#if __ARM_ARCH_ISA_THUMB == 1
  int32_t vl, ml, mh, low;
  __asm__(
    "uxth %[vl], %[v]\\n"
    "asrs %[v], %[v], #16\\n"
    "uxth %[ml], %[m]\\n"
    "asrs %[mh], %[m], #16\\n"
    "mov %[low], %[ml]\\n"
    "muls %[low], %[vl], %[low]\\n"
    "lsrs %[low], %[low], #16\\n"
    "muls %[ml], %[v], %[ml]\\n"
    "adds %[ml], %[ml], %[low]\\n"
    "muls %[v], %[mh], %[v]\\n"
    "asrs %[low], %[ml], #16\\n"
    "adds %[v], %[v], %[low]\\n"
    "uxth %[ml], %[ml]\\n"
    "muls %[vl], %[mh], %[vl]\\n"
    "adds %[ml], %[ml], %[vl]\\n"
    "asrs %[ml], %[ml], #16\\n"
    "adds %[v], %[v], %[ml]\\n"
    : [v] "+l"(v), [vl] "=&l"(vl), [ml] "=&l"(ml), [mh] "=&l"(mh), [low] "=&l"(low)
    : [m] "l"(m)
    : "cc");
  return v;
#else
  return (int64_t)v * m >> 32;
#endif
}"""


def _floats(name: str, sign: str) -> str:
    """C of a bound of a float; what is no number stays that."""
    return f"INLINE float {name}(float v, float b) {{ return b {sign} v ? b : v; }}"


def _propagating(name: str, sign: str) -> str:
    """C of the greater or the smaller float; no number where one of them is none."""
    return f"INLINE float {name}(float a, float b) {{ return b {sign} a || b != b ? b : a; }}"


def _quotient(value: int, divisor: int) -> int:
    """A number divided by a positive one, rounded to zero as C rounds."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _narrowed(row: int) -> int:
    """Where VQMOVN leaves a row: of each sixteen rows 4 i + f, at i behind 0, 8, 4 and 12 for f = 0, 1, 2 and 3."""
    return row & ~15 | (row & 1) << 3 | (row & 2) << 1 | row >> 2 & 3


def _scaled64(value: int, multiplier: int, shift: int) -> int:
    """apply_scale_16, whose product has 64 bits.

    Raises:
        ValueError: it has more.
    """
    product = value * multiplier + (1 << (shift - 1))
    if not -1 << 63 <= product < 1 << 63:
        raise ValueError(f"{value} * {multiplier} does not fit 64 bits")
    return wrapped(product >> shift)


def _extremum(choose: Callable[..., float], a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else choose(a, b)


def _nearest(value: float) -> int:
    """The nearest int32, half to even; 0 of what is no number."""
    return 0 if math.isnan(value) else int(clamped(np.rint(value), -(1 << 31), (1 << 31) - 1))


_NEAREST = """\
INLINE int32_t nearest(float v) {
  int32_t found;
  __asm__("vcvtn.s32.f32 %0, %1" : "=t"(found) : "t"(v));
  return found;
}"""

_SATURATED = (
    "INLINE int32_t saturated32(int64_t v) { return v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v; }"
)

OPS: Mapping[str, Operation] = MappingProxyType(
    {
        "add": _infix("+", lambda a, b: a + b),
        "sub": _infix("-", lambda a, b: a - b),
        "mul": _infix("*", lambda a, b: a * b),
        "bit_and": _infix("&", lambda a, b: a & b),
        "bit_or": _infix("|", lambda a, b: a | b),
        "bit_xor": _infix("^", lambda a, b: a ^ b),
        "eq": _infix("==", lambda a, b: int(a == b), 2),
        "gt": _infix(">", lambda a, b: int(a > b), 2),
        "ge": _infix(">=", lambda a, b: int(a >= b), 2),
        "bit_not": Operation(lambda v: ~v, "(~{0})", 1),
        "quotient": _infix("/", _quotient, 12),
        "rest": _infix("%", lambda v, n: v - n * _quotient(v, n), 14),
        "narrowed": _function("narrowed", "v", "(v & ~15) | (v & 1) << 3 | (v & 2) << 1 | (v >> 2 & 3)", 7, _narrowed),
        "select": Operation(lambda c, a, b: a if c else b, "({0} ? {1} : {2})", 3),
        "max": _function("max32", "a b", "a > b ? a : b", 2, max),
        "min": _function("min32", "a b", "a < b ? a : b", 2, min),
        "abs": _function("abs32", "v", "v < 0 ? (int32_t)(0u - (uint32_t)v) : v", 2, lambda v: wrapped(abs(v))),
        "clz": _function("clz32", "v", "v ? __builtin_clz(v) : 32", 1, lambda v: 32 - (v % (1 << 32)).bit_length()),
        "low": Operation(lambda v: (v + 128) % 256 - 128, "(int8_t)({0})", 1),
        "low_half": Operation(lambda v: (v + (1 << 15)) % (1 << 16) - (1 << 15), "(int16_t)({0})", 1),
        "asr": _infix(">>", lambda v, s: v >> s),
        "round_asr": _function(
            "round_asr", "v s", "((int64_t)v + (1ll << (s - 1))) >> s", 5, lambda v, s: (v + (1 << (s - 1))) >> s
        ),
        "shift": _shift("shift32", "int32_t", rounding=False),
        "round_shift": _shift("round_shift32", "int32_t", rounding=True),
        "logical_shift": _shift("logical_shift32", "uint32_t", rounding=False),
        "sat8": _saturating(8),
        "sat16": _saturating(16),
        "sat_shl": _function(
            "sat_shl",
            "v s",
            "v > INT32_MAX >> s ? INT32_MAX : v < INT32_MIN >> s ? INT32_MIN : (int32_t)((uint32_t)v << s)",
            6,
            lambda v, s: clamped(v << s, -(1 << 31), (1 << 31) - 1),
        ),
        "clamp": _function("clamp32", "v l h", "v < l ? l : v > h ? h : v", 4, clamped),
        "high": Operation(lambda v, m: (v * m) >> 32, "high32({0}, {1})", 1, _HIGH32),
        "doubled_high": _function("doubled_high32", "v m", "(int64_t)v * m >> 31", 4, lambda v, m: (v * m) >> 31),
        "round_doubled_high": _function(
            "round_doubled_high32",
            "v m",
            "((int64_t)v * m + (1ll << 30)) >> 31",
            5,
            lambda v, m: (v * m + (1 << 30)) >> 31,
        ),
        "at_least": Operation(lambda a, b: b if b > a else a, "at_least({0}, {1})", 2, _floats("at_least", ">")),
        "at_most": Operation(lambda a, b: b if b < a else a, "at_most({0}, {1})", 2, _floats("at_most", "<")),
        "max_nan": Operation(partial(_extremum, max), "max_nan({0}, {1})", 3, _propagating("max_nan", ">")),
        "min_nan": Operation(partial(_extremum, min), "min_nan({0}, {1})", 3, _propagating("min_nan", "<")),
        "max_number": Operation(np.fmax, "__builtin_fmaxf({0}, {1})", 1),
        "min_number": Operation(np.fmin, "__builtin_fminf({0}, {1})", 1),
        "neg": Operation(lambda v: -v, "(-{0})", 1),
        "magnitude": Operation(math.fabs, "__builtin_fabsf({0})", 1),
        "floor": Operation(np.floor, "__builtin_floorf({0})", 1),
        "ceil": Operation(np.ceil, "__builtin_ceilf({0})", 1),
        "float": Operation(float, "(float)({0})", 1),
        "nearest": Operation(_nearest, "nearest({0})", 1, _NEAREST),
        "round_high_add": _function(
            "round_high_add",
            "v m a",
            "saturated32((((int64_t)v * m + (1ll << 30)) >> 31) + a)",
            8,
            lambda v, m, a: clamped(((v * m + (1 << 30)) >> 31) + a, -(1 << 31), (1 << 31) - 1),
            _SATURATED,
        ),
        "scale48": _function(
            "scale48",
            "h l m s",
            "((int64_t)h * (256 * m) + (int64_t)l * m + (1ll << (s - 1))) >> s",
            10,
            lambda h, low, m, s: ((256 * h + low) * m + (1 << (s - 1))) >> s,
        ),
        "scale64": Operation(
            _scaled64,
            "scale64({0}, {1}, {2})",
            20,
            "INLINE int32_t scale64(int64_t v, int32_t m, int32_t s) { return (v * m + (1ll << (s - 1))) >> s; }",
        ),
        "scale32": _function(
            "scale32",
            "v m s",
            "((int64_t)v * m + (1ll << (s - 1))) >> s",
            12,
            lambda v, m, s: (v * m + (1 << (s - 1))) >> s,
        ),
    }
)
"""By name.

`low` is the low byte, `low_half` the low 16 bits, `high` is SMMUL. `asr` and `round_asr` shift right by a known number.
`scale32` is apply_scale_32 of the TOSA specification without double rounding. `scale48` is apply_scale_16 of a sum of
two numbers: the first is all but the last eight bits, and the second what is left; `scale64` is that of one number of
64 bits. `round_high_add` is VQRDMLASH.
`max_nan` is no number where one of two is none, `max_number` the other one then. `quotient` and `rest` are those of a
division by a positive number. `narrowed` is the place of a row among rows in the order that VQMOVN leaves. Shifts by a
number that is not known are to the left, and to the right where it is negative.
"""

LOW = {8: "low", 16: "low_half"}
"""What takes so many low bits of a number."""
LOOKUP = "lookup"
"""`lookup(table, v)`: the element `v` behind the access `table`. Its first argument is a place, not a number."""
