"""Sketches of MATMUL in which a tile of sums lies in general registers.

Of int16 a result has two sums, which lie side by side: `parts` of a tile's channels that are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tosaic.backends.cortex_m.program.sketches.products import Tile, blocked, constants, epilogue, summed


def thumb_matmul(tile: Tile, high: bool, parts: int = 1) -> Iterator[str]:
    """MATMUL with products of words and sums in high registers: words of the rows of a tile alternate."""
    yield from ("widen(P, i32)",)
    yield from _begun(tile, high, parts)
    yield from summed(tile, "P", "h")
    yield from tile.ordered()
    if tile.pixels > 1:
        yield "reorder_dims(P, d021)"
    if tile.channels > 1:
        yield from (*_columns(tile, parts), "reorder_dims(Q, d0132)")
    yield from ("stage(P, k, pr, r)", "stage(Q, k, qr, r, i32)")
    yield from blocked(tile, tile.depth)
    yield from _ended(tile, high, parts)


def dsp_matmul(tile: Tile, high: bool, parts: int = 1) -> Iterator[str]:
    """MATMUL with products of halves, of an even depth: words of the rows, and of the columns, of a tile alternate."""
    yield from _begun(tile, high, parts)
    yield from summed(tile, "P", tile.sums)
    yield "split(k, kh, 2)"
    for loop in tile.loops:
        yield f"reorder(kh, {loop})"
    yield from ("split(ck, ch, 2)", "split(dk, dh, 2)", "divide_dim(P, 2, 2)", "divide_dim(Q, 2, 2)")
    if tile.pixels > 1:
        yield "reorder_dims(P, d0213)"
    if tile.channels > 1:
        yield from (*_columns(tile, parts), "reorder_dims(Q, d01324)")
    yield from tile.ordered()
    yield from tile.pairs()
    yield from tile.operands("k", "stage(Q, @, qh, r)", "stage(P, @, ph, r)")
    yield from blocked(tile, tile.depth // 2)
    yield from _ended(tile, high, parts)


def scalar_matmul(tile: Tile, high: bool, parts: int = 1) -> Iterator[str]:
    """MATMUL with products of words: halves are widened as they are loaded."""
    yield from _begun(tile, high, parts)
    yield from summed(tile, "P", tile.sums)
    yield from tile.ordered()
    yield from tile.operands("k", "stage(Q, @, qr, r, i32)", "stage(P, @, pr, r, i32)")
    yield from blocked(tile, tile.depth)
    yield from _ended(tile, high, parts)


def _results(tile: Tile, parts: int) -> Tile:
    """The tile of results."""
    return replace(tile, channels=tile.channels // parts)


def _begun(tile: Tile, high: bool, parts: int) -> Iterator[str]:
    """Tiles of results, and the sums of an image."""
    yield from epilogue(_results(tile, parts), high)
    yield from ("compute_at(S, v)", "compute_at(Q, v)")


def _columns(tile: Tile, parts: int) -> Iterator[str]:
    """The columns of a tile side by side."""
    if tile.channels > parts:
        yield f"split(dn, dni, {tile.channels // parts})"
    yield f"divide_dim(Q, 1, {tile.channels})"


def _ended(tile: Tile, high: bool, parts: int) -> Iterator[str]:
    if tile.sums == "p":
        yield from _SCALED
    yield from constants(_results(tile, parts), high, scaled=parts == 1 and tile.sums != "p")


_SCALED = ("stage(multiplier, v, multiplier_r, r)", "stage(shift, v, shift_r, r)")
"""The steps that keep the scale of all results in registers."""


@dataclass(frozen=True)
class LongRows:
    """The numbers of MATMUL with vectors of int16 and sums of 64 bits.

    Args:
        rows, depth: of the first operand.
        together: rows that are multiplied with a column at a time.
        unroll: vectors of a column in an iteration of a hardware loop; 0 where that is over columns.
        ahead: loads that run an iteration ahead.
        copied: whether the columns are copied first; else they are read where they lie.
    """

    rows: int
    depth: int
    together: int
    unroll: int
    ahead: int
    copied: bool

    @property
    def vectors(self) -> int:
        """Of a column, the last of which may be short."""
        return -(-self.depth // LONG_LANES)

    @property
    def columns(self) -> str:
        """The buffer that they are read from."""
        return "Q" if self.copied else "b"

    @property
    def held(self) -> bool:
        """Whether the rows of a tile stay in registers for all columns."""
        whole = self.depth % LONG_LANES == 0 or self.vectors == 1
        return self.unroll == 0 and whole and self.together * self.vectors <= _HELD


LONG_LANES, _HELD = 8, 5
"""Elements of a vector of int16, and vectors that stay in registers."""


def long_matmul(s: LongRows) -> Iterator[str]:
    """MATMUL with products of vectors that add up in pairs of registers: a hardware loop over columns, or over the
    vectors of one."""
    yield "inline(P)"
    together = s.together > 1
    if together:
        yield f"split(x, xi, {s.together}{', early' * (s.rows % s.together > 0)})"
        yield "reorder(xi, n)"
    yield from ("compute_at(S, v)", "compute_at(Q, v)" if s.copied else "inline(Q)")
    yield from ("compute_at(S, x)", "compute_at(S, n)", "place(S, p)", *_SCALED)
    if together:
        yield from ("distribute(sx)", *(["reorder(sxb, k)"] if s.vectors > 1 else []))
    around = "n" if s.unroll else "x"
    if s.held:
        yield "stage(a, x, held, q)"
        if s.vectors > 1:
            yield f"split(held{int(together)}, heldl, {LONG_LANES})"
    yield from _column(s) if s.vectors > 1 else (f"stage({s.columns}, n, k0b, q)",)
    yield f"stage(out, {'xi' if together else 'n'}, o, r, i32)"
    loop = "k" if s.unroll else "n"
    yield from (f"select({around}, mve)", f"hardware_loop({loop})")
    if s.ahead:
        yield f"hoist({loop}, {s.ahead})"
    yield f"block({around})"


def _column(s: LongRows) -> Iterator[str]:
    """The vectors of a column: whole ones in iterations, those that are left, and a short one."""
    iteration = LONG_LANES * max(s.unroll, 1)
    parts = [(s.depth // iteration * iteration, iteration)] if s.depth >= iteration else []
    left = s.depth % iteration
    parts += [(left // LONG_LANES * LONG_LANES, LONG_LANES)] if left >= LONG_LANES else []
    parts += [(left % LONG_LANES, left % LONG_LANES)] if left % LONG_LANES else []
    loop, rest = "k", s.depth
    for number, (size, step) in enumerate(parts):
        rest -= size
        if rest:
            yield f"cut({loop}, {size})"
        yield from _vectors(s, loop, f"k{number}", step)
        loop += "_t"


def _vectors(s: LongRows, loop: str, own: str, step: int) -> Iterator[str]:
    """Iterations of so many elements, vector by vector."""
    vector = loop
    if step > LONG_LANES:
        vector = f"{own}u"
        yield f"split({loop}, {vector}, {step})"
    yield f"split({vector}, {own}l, {min(step, LONG_LANES)})"
    if s.together > 1:
        yield f"reorder({own}l, sxb{loop[1:]})"
    yield f"stage({s.columns}, {vector}, {own}b, q)"
    if not s.held:
        yield f"stage(a, {'sxb' + loop[1:] if s.together > 1 else vector}, {own}a, q)"


_SCALED = ("stage(multiplier, v, multiplier_r, r)", "stage(shift, v, shift_r, r)")
"""The steps that keep the scale of all results in registers."""
