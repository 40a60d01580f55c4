"""Sketches of reductions: schedules of `algorithms.reduction`.

On cores with vectors `by_rows` lets a hardware loop go over the rows, whose vectors are written out, `by_vectors` over
the vectors of each row. What is left of a row is a vector that a mask keeps short; extremes may take one that starts
early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_IN_REGISTERS = ("place(first, r)", "compute_at(S, y)", "place(S, r)")


@dataclass(frozen=True)
class Rows:
    """The numbers of a schedule.

    Args:
        rows, length: how many there are, and their elements.
        lanes: elements of a vector.
        again: whether an element may be reduced twice.
        dtype: of an element.
        together: rows, or vectors of a row, in an iteration.
        ahead: loads that run an iteration ahead.
    """

    rows: int
    length: int
    lanes: int
    again: bool
    dtype: str
    together: int
    ahead: int


def scalar(length: int, unrolled: int) -> Iterator[str]:
    """So many elements of a row in an iteration, the rest one by one."""
    yield from _IN_REGISTERS
    if unrolled == 1:
        return
    if length % unrolled:
        yield f"cut(k, {length // unrolled * unrolled})"
    yield from (f"split(k, ki, {unrolled})", "unroll(ki)")


def by_rows(s: Rows) -> Iterator[str]:
    """The steps of a schedule that iterates over the rows."""
    yield from _IN_REGISTERS
    whole = s.length // s.lanes * s.lanes
    if s.again and 0 < whole < s.length:
        yield from (f"split(k, kl, {s.lanes}, early)", "stage(a, k, va, q)")
    else:
        yield from _vectors("k", s.length, s)
    rest = s.rows % s.together
    if rest:
        yield f"cut(y, {s.rows - rest})"
    if s.together > 1:
        yield f"split(y, yi, {s.together})"
    yield from ("select(y, mve)", "hardware_loop(y)")
    if s.ahead:
        yield f"hoist(y, {s.ahead})"
    if rest:
        yield from ("select(y_t, mve)", f"{'hardware_loop' if rest > 1 else 'block'}(y_t)")


def by_vectors(s: Rows) -> Iterator[str]:
    """The steps of a schedule that iterates over the vectors of a row."""
    yield from _IN_REGISTERS
    step = s.together * s.lanes
    rest = s.length % step
    if rest:
        yield f"cut(k, {s.length - rest})"
        yield from _vectors("k_t", rest, s)
    inner = "k"
    if s.together > 1:
        yield f"split(k, kv, {step})"
        inner = "kv"
    yield from (f"split({inner}, kl, {s.lanes})", f"stage(a, {inner}, va, q)")
    yield from ("select(y, mve)", "hardware_loop(k)")
    if s.ahead:
        yield f"hoist(k, {s.ahead})"
    yield "block(y)"


def _vectors(loop: str, length: int, s: Rows) -> Iterator[str]:
    """A loop over so many elements becomes one over vectors, and a short one behind them."""
    whole = length // s.lanes * s.lanes
    if whole == 0:
        within = f", {s.dtype}, {loop}" if loop != "k" else ""
        yield f"stage(a, y, vt, q{within})"
        return
    if whole < length:
        yield f"cut({loop}, {whole})"
    yield from (f"split({loop}, {loop}l, {s.lanes})", f"stage(a, {loop}, v{loop}, q)")
    if whole < length:
        yield f"stage(a, y, vt, q, {s.dtype}, {loop}_t)"
