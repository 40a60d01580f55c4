"""The operations of values: what each computes, what it is in C, and what it costs a scalar core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class Operation(NamedTuple):
    """An operation on integers.

    Args:
        compute: its value, without limits of width.
        c: an expression of C with `{0}`, `{1}` ... for its arguments.
        instructions: what a core without vectors executes for it, about.
        helper: C that it needs before the kernel.
    """

    compute: Callable[..., int]
    c: str
    instructions: int
    helper: str = ""


def clamped(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def _saturating(bits: int) -> Operation:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    helper = f"INLINE int32_t sat{bits}(int32_t v) {{ return v < {low} ? {low} : v > {high} ? {high} : v; }}"
    return Operation(lambda v: clamped(v, low, high), f"sat{bits}({{0}})", 1, helper)


OPS: Mapping[str, Operation] = MappingProxyType(
    {
        "add": Operation(lambda a, b: a + b, "({0} + {1})", 1),
        "sub": Operation(lambda a, b: a - b, "({0} - {1})", 1),
        "mul": Operation(lambda a, b: a * b, "({0} * {1})", 1),
        "max": Operation(
            max, "max32({0}, {1})", 2, "INLINE int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }"
        ),
        "low": Operation(lambda v: (v + 128) % 256 - 128, "(int8_t)({0})", 1),
        "asr": Operation(lambda v, s: v >> s, "({0} >> {1})", 1),
        "sat8": _saturating(8),
        "sat16": _saturating(16),
        "clamp": Operation(
            clamped,
            "clamp32({0}, {1}, {2})",
            4,
            "INLINE int32_t clamp32(int32_t v, int32_t l, int32_t h) { return v < l ? l : v > h ? h : v; }",
        ),
        "high": Operation(
            lambda v, m: (v * m) >> 32,
            "high32({0}, {1})",
            1,
            "INLINE int32_t high32(int32_t v, int32_t m) { return (int64_t)v * m >> 32; }",
        ),
        "scale32": Operation(
            lambda v, m, s: (v * m + (1 << (s - 1))) >> s,
            "scale32({0}, {1}, {2})",
            12,
            "INLINE int32_t scale32(int32_t v, int32_t m, int32_t s)"
            " { return ((int64_t)v * m + (1ll << (s - 1))) >> s; }",
        ),
    }
)
"""By name. `low` is the low byte, `high` is SMMUL, `scale32` is apply_scale_32 of the TOSA specification without double
rounding."""

LOOKUP = "lookup"
"""`lookup(table, v)`: the element `v` behind the access `table`. Its first argument is a place, not a number."""
