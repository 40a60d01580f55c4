"""The sketch of CONV2D for cores with vectors whose windows are columns of one channel: sums of several pixels of a row
in lanes, while a hardware loop goes down the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, RowResult

_BITS = {"i8": "lanes", "i16": "half_lanes", "i32": ""}
"""The identity that saturates a result in a word."""


@dataclass(frozen=True)
class ColumnTiles:
    """The numbers of a schedule.

    Args:
        row: pixels of a row.
        vectors: of sums.
        ahead: loads that run an iteration ahead.
    """

    row: int
    result: RowResult
    vectors: int
    ahead: int


def columns(s: ColumnTiles) -> Iterator[str]:
    """The steps of a schedule."""
    tile = FOUR * s.vectors
    yield from ("inline(P)", "drop(kx)", "drop(k)", "postpone(S)")
    yield from (f"rewrite(out, {rule})" for rule in s.result.rules)
    yield from _values(s.result)
    yield "drop(n)"
    yield from _numbers(s.result)
    yield f"split(x, xu, {tile}{', early' * (s.row % tile > 0)})"
    if s.vectors > 1:
        yield f"split(xu, xl, {FOUR})"
    lanes = "xl" if s.vectors > 1 else "xu"
    yield "compute_at(S, x)"
    yield from (f"spread({name}_g, x, {name}_q, q, i32, {lanes})" for name in _spread(s.result))
    yield from ("merge_dims(S)", "place(S, q)")
    if s.vectors > 1:
        yield from (
            f"split(sx, sl, {FOUR})",
            "distribute(sl)",
            "distribute(sx)",
            "reorder(slb, ky)",
            "reorder(sxb, ky)",
        )
    else:
        yield from ("distribute(sx)", "reorder(sxb, ky)")
    iteration = "sxb" if s.vectors > 1 else "ky"
    yield from ("stage(w, ky, wr, r, i32)", f"stage(a, {iteration}, va, q, i32)", f"unfold({lanes}, v, q)")
    yield from ("select(x, mve)", "hardware_loop(ky)", "block(x)")
    if s.ahead:
        yield f"hoist(ky, {s.ahead})"


def _values(result: RowResult) -> Iterator[str]:
    """How results are computed."""
    if result.clamped:
        yield "rewrite(out, bounded)"
    elif _BITS[result.element]:
        yield f"rewrite(out, {_BITS[result.element]})"
    if result.table:
        yield "rewrite(out, indexed)"


def _spread(result: RowResult) -> list[str]:
    """The constants that are read as vectors."""
    return [*result.bounds, *(["whole"] if result.form == "rounded" else [])]


def _numbers(result: RowResult) -> Iterator[str]:
    """The constants in registers."""
    names = [*(["zero"] if result.element == "i8" else []), *result.factors, *_spread(result)]
    yield from (f"stage({name}, b, {name}_g, r)" for name in dict.fromkeys(names))
