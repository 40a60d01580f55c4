"""The sketch of products of one row for cores with vectors: schedules of CONV2D of one pixel, whatever its sizes are.

A hardware loop goes over the channels of a part, all of the depth in a turn; the first vectors of the input stay in
registers, and its last one does where it is short. Or it goes over the depth, for some channels at a time. Names are
those of `program.algorithms`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.row_parts import FOUR, LANES, OneRow, RowPart, row_parts
from tosaic.backends.cortex_m.program.sketches.row_sums import row_sums

_BITS = {"i8": "lanes", "i16": "half_lanes", "i32": ""}
"""The identity that saturates a result in a word."""


def one_row(s: OneRow) -> Iterator[str]:
    """The steps of a schedule."""
    yield from ("inline(P)", "drop(ky)", "drop(kx)", "postpone(S)", "compute_at(S, n)")
    yield f"rewrite(out, {s.result.form})"
    if s.whole and s.rest:
        yield f"cut(n, {s.whole})"
    parts = row_parts(s)
    for part in parts:
        yield from _values(part)
    if len(parts) > 1:
        yield from (f"apart({name}, {name}_t, n_t)" for name in ("w", *s.result.factors))
    yield from _numbers(s)
    for part in parts:
        yield from _scheduled(part)
    for part in parts:
        yield from _selected(part)
    # What runs ahead comes last: schedules that differ in that alone share all trees before.
    for part in parts:
        yield from _hoisted(part)


def _numbers(s: OneRow) -> Iterator[str]:
    """What all results have in common, in registers."""
    if s.whole and s.result.form != "rounded":
        yield "stage(zero_half, b, zh, r)"
    if s.result.element != "i32" and (s.rest or s.result.form == "rounded"):
        yield "stage(zero, b, z, r)"
    if s.result.clamped:
        yield from (f"stage({name}, b, z{name}, r)" for name in ("least", "most"))


def _values(part: RowPart) -> Iterator[str]:
    """How results are computed."""
    result = part.s.result
    if part.whole:
        yield f"rewrite(out, {'halves' if result.form == 'rounded' else 'narrow'}, {part.loop})"
    if result.clamped:
        yield f"rewrite(out, {'bounds' if part.whole else 'bounded'}, {part.loop})"
    elif not part.whole and _BITS[result.element]:
        yield f"rewrite(out, {_BITS[result.element]}, {part.loop})"
    if result.table:
        yield f"rewrite(out, indexed, {part.loop})"


def _scheduled(part: RowPart) -> Iterator[str]:
    """Its sums and its finish."""
    if part.inner != part.loop:
        yield f"split({part.loop}, {part.inner}, {part.block})"
    yield from (f"expand({part.named('S')}, {part.inner})", f"distribute({part.inner}, 2)")
    yield from _narrowed(part) if part.whole else _fours(part)
    yield from row_sums(part)


def _selected(part: RowPart) -> Iterator[str]:
    """Its instructions."""
    for group in part.groups:
        yield from _block(group.around, group.turned, group.turns)
    finished = f"{part.inner}b"
    if part.whole:
        yield "write_out(eq)"
        yield from _block(finished, "nf", part.block // (LANES * part.finish))
        return
    whole, left = divmod(part.block, FOUR)
    if whole:
        yield from _block(finished, "nq", whole // part.fours)
    if left:
        yield from _block(f"{finished}_t" if whole else finished, "", 1)


def _block(around: str, turn: str, turns: int) -> Iterator[str]:
    yield f"select({around}, mve)"
    if turns > 1:
        yield f"hardware_loop({turn})"
    yield f"block({around})"


def _hoisted(part: RowPart) -> Iterator[str]:
    """Loads that run ahead."""
    for group in part.groups:
        if part.s.ahead and group.turns > 1:
            yield f"hoist({group.turned}, {part.s.ahead})"
    if part.whole:
        finish, turns = "nf", part.block // (LANES * part.finish)
    else:
        finish, turns = "nq", part.block // (FOUR * part.fours)
    if part.s.finish_ahead and turns > 1:
        yield f"hoist({finish}, {part.s.finish_ahead})"


def _spread(part: RowPart, around: str, lanes: str, dtype: str) -> Iterator[str]:
    for name in ("least", "most") if part.s.result.clamped else ():
        yield f"spread(z{name}, {around}, {lanes}q{name}, q, {dtype}, {lanes})"


def _narrowed(part: RowPart) -> Iterator[str]:
    """Sixteen results of a turn: lane i of a vector of sums becomes byte 4 i + 2 q + h."""
    result, around, turn = part.s.result, f"{part.inner}b", "nf"
    yield f"split({around}, nf, {part.block})"
    if part.finish > 1:
        turn = "nu"
        yield f"split(nf, nu, {LANES * part.finish})"
    yield f"split({turn}, ni, {LANES})"
    yield from _spread(part, around, "ni", "i8")
    halves = "E" if result.form == "rounded" else "FE"
    bytes_ = [*(["Y"] if result.table else []), *(["D", "C"] if result.clamped else []), "B"]
    ops = {"Y": "lookup", "D": "min", "C": "max", "B": "sat8", "F": "sat16", "E": "sat16"}
    for name, source in zip((*bytes_, *halves), ("out", *bytes_, *halves), strict=False):
        yield f"part({source}, {ops[name]}, {turn}, {name}, {'scratch, i16' if name in halves else 'q, i8'})"
    for name in f"B{halves}":
        yield f"split({name}0, {name.lower()}h, 2)"
        if name != "E":
            yield f"reorder({name}0, {name.lower()}h)"
    yield from ("split(E0, eq, 2)", "reorder(eq, eh)", "reorder(E0, eh)", "reorder(E0, eq)")
    for name in halves:
        yield from (f"divide_dim({name}, 0, 2)", f"reorder_dims({name}, d10)", f"place({name}, q)")
    for factor in result.factors:
        yield from (f"pack({factor})", f"stage({factor}, eq, v{factor}, q)")
    yield from ("unfold(E0, v, q)", "write_out(bh)")


def _fours(part: RowPart) -> Iterator[str]:
    """Results of words, four of a vector, and those that are left."""
    around = f"{part.inner}b"
    whole, left = part.block // FOUR * FOUR, part.block % FOUR
    if whole and left:
        yield f"cut({around}, {whole})"
    if whole:
        turn = "nq"
        yield f"split({around}, nq, {whole})"
        if part.fours > 1:
            turn = "nv"
            yield f"split(nq, nv, {FOUR * part.fours})"
        yield f"split({turn}, nl, {FOUR})"
        yield from _four(part, around, turn, "nl")
    if left:
        around = f"{around}_t" if whole else around
        yield f"split({around}, nr, {left})"
        yield from _four(part, around, around, "nr")


def _four(part: RowPart, around: str, turn: str, lanes: str) -> Iterator[str]:
    yield from _spread(part, around, lanes, "i32")
    for factor in part.s.result.factors:
        yield f"stage({part.named(factor)}, {turn}, {lanes}v{factor}, q)"
    yield f"unfold({lanes}, {lanes}v, q)"
