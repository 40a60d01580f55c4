"""Products of two activations for cores with vectors: what schedules of MATMUL have beside those of CONV2D.

A block of columns of the second operand is copied to scratch memory, by columns, in the order in which its sums are
finished. What zero points add to the sums is `Z` by column and `T` by row. Names are those of `program.algorithms`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.program.sketches.copies import moved
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, PixelRows
from tosaic.backends.cortex_m.program.sketches.row_parts import RowPart

_UNROLLED, _ADDED = 4, 32
"""Vectors of a column that are written out in a turn: of copies, and of terms."""


def opened_product(s: PixelRows) -> Iterator[str]:
    """The steps that make a tile of rows, and a column, for which sums are computed."""
    yield from (f"compute_at({name}, v)" for name in "SZ")
    if 1 < s.together < s.row:
        yield from (f"split(x, xi, {s.together}{', early' * (s.row % s.together > 0)})", "reorder(xi, n)")
    yield "drop(x)" if s.row == 1 else "reorder(x, n)"
    yield from (f"compute_at(S, {'x' if s.together < s.row else 'n'})", "compute_at(Z, n)")


def summed_apart(part: RowPart) -> Iterator[str]:
    """The steps that make blocks of columns, whose terms are added up first, and copy them."""
    s, block = part.s, f"{part.loop}m"
    yield from (f"split({part.loop}, {block}, {part.block})", f"expand({part.named('Z')}, {block})")
    yield f"distribute({block}, 2)"
    if s.together < s.row:
        yield f"reorder({part.inner}, x{part.behind})"
    w = part.named("W")
    yield f"stage(b, {part.loop}, {w}, scratch)"
    if not s.transposed:
        yield from (f"reorder_dims({w}, d10)", f"reorder({w}0, {w}1)")
    if s.short:
        yield f"lengthen({w}, 1, {round_up(s.depth, LANES)})"


def numbered(part: RowPart, around: str, lanes: str) -> Iterator[str]:
    """The steps that bring the numbers that results have in common to vectors where an instruction wants those."""
    if part.s.result.uniform and part.s.result.form == "rounded":
        yield f"spread(whole_g, {around}, {lanes}qwhole, q, i32, {lanes})"


def narrowed_terms(part: RowPart) -> Iterator[str]:
    """The steps that lay the terms of columns out in the order in which vectors of results take them, and bring those
    of rows to registers."""
    if part.over_pixels:
        around = part.pixel
    else:
        around = part.finished if part.shared == part.pixel else part.pixel
    yield f"stage(T, {around}, tr, r)"
    if part.shared and around == part.pixel and not part.over_pixels:
        yield "unroll(tr0)"
    yield from (f"split({part.loop}m, th, 2)", f"split({part.loop}m, tq, 2)", f"split({part.loop}m, ti, 4)")
    yield from _ordered(part, "Z", 2)


def ordered_weights(part: RowPart) -> Iterator[str]:
    """The steps that lay columns out in that order."""
    column = "W0" if part.s.transposed else "W1"
    yield from (f"split({column}, wh, 2)", f"split({column}, wq, 2)", f"split({column}, wi, 4)")
    yield from _ordered(part, "W", 1)


def _ordered(part: RowPart, name: str, behind: int) -> Iterator[str]:
    """The columns, which the first dimension of a buffer counts, in that order; other dimensions are behind."""
    yield from [f"divide_dim({name}, 0, {LANES})"] * (part.block > LANES)
    first, order = int(part.block > LANES), "d0321" if part.block > LANES else "d210"
    yield from (f"divide_dim({name}, {first}, 4)", f"divide_dim({name}, {first + 1}, 2)")
    yield f"reorder_dims({name}, {order}{''.join(str(len(order) - 1 + i) for i in range(behind))})"


def pixel_terms(s: PixelRows) -> Iterator[str]:
    """The steps that add up the elements of each row."""
    yield from ("stage(A, ax, Ar, r)", *_vectors(s, "ak", "a", "aa", "al"))
    yield from _turned(s, "ax", s.row, "aj", "ax", "ak")


def brought_together(part: RowPart) -> Iterator[str]:
    """The steps that copy a block of columns, and add up their terms."""
    s, own = part.s, part.behind
    column, depth = (f"W{own}0", f"W{own}1") if s.transposed else (f"W{own}1", f"W{own}0")
    if s.transposed:
        yield from _vectors(s, depth, "b", f"wb{own}", f"wl{own}")
        turns, inner = (part.block // LANES, "wh") if part.whole else (part.block, column)
        yield from _turned(s, column, turns, f"wj{own}", inner, depth)
    else:
        near = (LANES - 1) * s.channels < 1 << 8
        lanes, element = (LANES, "") if near else (LANES // 2, ", i16")
        yield from moved("b", depth, f"wm{own}", s.depth, lanes, element=element)
    loop = f"{part.loop}m"
    if part.whole:
        yield from ("reorder(tq, th)", "reorder(ti, th)", "reorder(ti, tq)")
        yield from (f"fuse({loop}, th)", "fuse(th, tq)", "fuse(tq, ti)")
        loop = "ti"
    yield from _terms(part, loop)


def _terms(part: RowPart, loop: str) -> Iterator[str]:
    """The steps that add up what columns, which `loop` counts, add to sums."""
    s, own = part.s, part.behind
    turned = s.vectors <= _ADDED
    turn, depth = (f"zj{own}" if turned else loop), f"zk{own}"
    yield from [f"split({loop}, {turn}, {part.block})"] * turned
    yield f"stage(Z{own}, {turn}, Zr{own}, r)"
    yield from _vectors(s, depth, f"W{own}", f"zw{own}", f"zl{own}", f"spread(az, {loop}, tq@, q, i8, @)")
    yield f"select({loop}, mve)"
    if part.block > 1 or not turned:
        yield f"hardware_loop({turn if turned else depth})"
    yield f"block({loop})"


def _vectors(s: PixelRows, depth: str, source: str, copy: str, lanes: str, spread: str = "") -> Iterator[str]:
    """The steps that take the elements of a column, or of a row, as vectors, the last one with a mask."""
    whole = s.vectors * LANES
    if whole and s.short:
        yield f"cut({depth}, {whole}, r)"
    if whole:
        yield from (f"split({depth}, {lanes}, {LANES})", f"stage({source}, {depth}, {copy}, q)")
        yield from [spread.replace("@", lanes)] * (spread != "")
    if s.short:
        last, own = (f"{depth}_r", "r") if whole else (depth, "")
        yield from (f"split({last}, {lanes}{own}, {s.short})", f"stage({source}, {last}, {copy}{own}, q)")
        yield from [spread.replace("@", f"{lanes}{own}")] * (spread != "")


def _turned(s: PixelRows, loop: str, turns: int, new: str, each: str, depth: str) -> Iterator[str]:
    """The steps of a hardware loop over columns, or rows, of few vectors each, or over the vectors of each."""
    if s.vectors <= _UNROLLED:
        yield from (f"split({loop}, {new}, {turns})", f"select({loop}, mve)")
        yield from [f"hardware_loop({new})"] * (turns > 1)
        yield f"block({loop})"
    else:
        n = next(n for n in (4, 3, 2, 1) if s.vectors % n == 0)
        yield from [f"split({depth}, {new}, {n})"] * (n > 1)
        yield from (f"select({each}, mve)", f"hardware_loop({depth})", f"block({each})")
