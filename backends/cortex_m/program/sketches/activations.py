"""Products of two activations for cores with vectors: what schedules of MATMUL have beside those of CONV2D.

A block of columns of the second operand is copied to scratch memory, by columns, in the order of the epilogue. What
zero points add to the sums is `Z` by column and `T` by row. Names are those of `program.algorithms`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, PixelRows
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart

_UNROLLED, _ADDED = 8, 32
"""Vectors of a column that are written out in an iteration: of copies, and of terms."""


def opened_product(s: PixelRows) -> Iterator[str]:
    """The steps that make a tile of rows, and a column, for which sums are computed."""
    yield from (f"compute_at({name}, v)" for name in ("S", *_column_terms(s)))
    if 1 < s.together < s.row:
        yield from (f"split(x, xi, {s.together}{', early' * (s.row % s.together > 0)})", "reorder(xi, n)")
    yield "drop(x)" if s.row == 1 else "reorder(x, n)"
    yield f"compute_at(S, {'x' if s.together < s.row else 'n'})"
    yield from (f"compute_at({name}, n)" for name in _column_terms(s))


def _column_terms(s: PixelRows) -> Sequence[str]:
    return ["Z"] * s.result.column_terms


def summed_apart(part: RowPart) -> Iterator[str]:
    """The steps that make blocks of columns, whose terms are added up first, and copy them."""
    s, block = part.s, f"{part.loop}m"
    yield f"split({part.loop}, {block}, {part.block})"
    if s.result.column_terms:
        yield from (f"expand({part.named('Z')}, {block})", f"distribute({block}, 2)")
    if s.together < s.row:
        yield f"reorder({part.inner}, x{part.behind})"
    if s.in_place:
        return
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
    """The steps that lay out the terms of columns, and bring those of rows to registers.

    The terms of columns lie in the order in which vectors of results take them.
    """
    if part.over_pixels:
        around = part.pixel
    else:
        around = part.epilogue if part.shared == part.pixel else part.pixel
    yield f"stage(T, {around}, tr, r)"
    if part.shared and around == part.pixel and not part.over_pixels:
        yield "unroll(tr0)"
    if part.s.in_place or part.s.result.column_terms:
        yield from (f"split({part.loop}m, th, 2)", f"split({part.loop}m, tq, 2)", f"split({part.loop}m, ti, 4)")
    if part.s.result.column_terms:
        yield from _ordered(part, "Z", 2)


def ordered_weights(part: RowPart) -> Iterator[str]:
    """The steps that lay columns out in that order."""
    column = "W0" if part.s.transposed else "W1"
    yield from (f"split({column}, wh, 2)", f"split({column}, wq, 2)", f"split({column}, wi, 4)")
    yield from _ordered(part, "W", 1)
    along = _copied(part)
    if along.vectors > _UNROLLED and along.whole < along.size:
        yield from (*along.cut(), "distribute(wh)", "distribute(wq)")


def _ordered(part: RowPart, name: str, behind: int) -> Iterator[str]:
    """The columns, which the first dimension of a buffer counts, in that order; other dimensions are behind."""
    yield from [f"divide_dim({name}, 0, {LANES})"] * (part.block > LANES)
    first, order = int(part.block > LANES), "d0321" if part.block > LANES else "d210"
    yield from (f"divide_dim({name}, {first}, 4)", f"divide_dim({name}, {first + 1}, 2)")
    yield f"reorder_dims({name}, {order}{''.join(str(len(order) - 1 + i) for i in range(behind))})"


def pixel_terms(depth: int, rows: int) -> Iterator[str]:
    """The steps that add up the elements of each row."""
    along = _Elements(depth, "ak", "al")
    yield from ("stage(A, ax, Ar, r)", *along.cut(), *along.read("a", "aa"), *_hardware_loop(along, "ax", rows, "aj"))


def brought_together(part: RowPart) -> Iterator[str]:
    """The steps that copy a block of columns, and add up their terms."""
    own, along = part.behind, _copied(part)
    column = f"W{own}{0 if part.s.transposed else 1}"
    if part.whole and along.vectors > _UNROLLED:
        yield from (*along.read("b", "wb"), *_four_together(along))
    else:
        yield from (*along.cut(), *along.read("b", f"wb{own}"))
        yield from _hardware_loop(along, column, part.block // (LANES if part.whole else 1), f"wj{own}")
    if not part.s.result.column_terms:
        return
    loop = f"{part.loop}m"
    if part.whole:
        yield from ("reorder(tq, th)", "reorder(ti, th)", "reorder(ti, tq)")
        yield from (f"fuse({loop}, th)", "fuse(th, tq)", "fuse(tq, ti)")
        loop = "ti"
    yield from column_terms(part.s.depth, part.block, part.named("W"), loop, own)


def _copied(part: RowPart) -> _Elements:
    """The elements of a column that is copied; bytes of a vector lie up to 255 apart."""
    s, own = part.s, part.behind
    if s.transposed or (LANES - 1) * s.channels < 1 << 8:
        return _Elements(s.depth, f"W{own}{1 if s.transposed else 0}", f"wl{own}")
    return _Elements(s.depth, f"W{own}0", f"wl{own}", LANES // 2, ", i16")


def column_terms(depth: int, columns: int, source: str, loop: str, own: str = "") -> Iterator[str]:
    """The steps that add up what columns of a source, which `loop` counts, add to sums."""
    along = _Elements(depth, f"zk{own}", f"zl{own}")
    by_column = along.vectors <= _ADDED
    iteration = f"zj{own}" if by_column else loop
    yield from [f"split({loop}, {iteration}, {columns})"] * by_column
    yield from (f"stage(Z{own}, {iteration}, Zr{own}, r)", *along.cut(), *along.read(source, f"zw{own}"))
    yield from (f"spread(az, {loop}, tq{lanes}, q, i8, {lanes})" for lanes in along.loops)
    yield f"select({loop}, mve)"
    if columns > 1 or not by_column:
        yield f"hardware_loop({iteration if by_column else along.depth})"
    yield f"block({loop})"


@dataclass(frozen=True)
class _Elements:
    """The elements of a column, or of a row, as vectors, of which a mask takes the last one where it is short.

    Args:
        size: how many there are.
        depth: the loop over them, that over vectors then.
        own: what names of loops over a vector begin with.
        element: the last argument of `stage`, where vectors hold another type.
    """

    size: int
    depth: str
    own: str
    lanes: int = LANES
    element: str = ""

    @property
    def whole(self) -> int:
        """Elements in whole vectors."""
        return self.size // self.lanes * self.lanes

    @property
    def vectors(self) -> int:
        """Whole ones."""
        return self.size // self.lanes

    @property
    def loops(self) -> list[str]:
        """The loops over a vector: of whole ones, and of the last one."""
        return [self.own] * (self.whole > 0) + [f"{self.own}r"] * (self.whole < self.size)

    def cut(self) -> Iterator[str]:
        """The step that tells the last vector from others."""
        if 0 < self.whole < self.size:
            yield f"cut({self.depth}, {self.whole}, r)"

    def read(self, source: str, copy: str) -> Iterator[str]:
        """The steps that bring each vector to a register."""
        if self.whole:
            yield f"split({self.depth}, {self.own}, {self.lanes})"
            yield f"stage({source}, {self.depth}, {copy}, q{self.element})"
        if self.whole < self.size:
            last = f"{self.depth}_r" if self.whole else self.depth
            yield f"split({last}, {self.own}r, {self.size - self.whole})"
            yield f"stage({source}, {last}, {copy}r, q{self.element})"


def _four_together(along: _Elements) -> Iterator[str]:
    """The steps of a hardware loop over the vectors of four columns."""
    yield from (f"reorder(wh, {along.depth})", f"reorder(wq, {along.depth})")
    yield from [f"split({along.depth}, wj, 2)"] * (along.vectors % 2 == 0)
    yield from ("select(wi, mve)", f"hardware_loop({along.depth})", "block(wi)")


def _hardware_loop(along: _Elements, loop: str, iterations: int, new: str) -> Iterator[str]:
    """The steps of a hardware loop over columns, or rows, of few vectors each, or over the vectors of each."""
    if along.vectors <= _UNROLLED:
        yield from (f"split({loop}, {new}, {iterations})", f"select({loop}, mve)")
        yield from [f"hardware_loop({new})"] * (iterations > 1)
        yield f"block({loop})"
    else:
        n = next(n for n in (4, 3, 2, 1) if along.vectors % n == 0)
        yield from [f"split({along.depth}, {new}, {n})"] * (n > 1)
        yield from (f"select({loop}, mve)", f"hardware_loop({along.depth})", f"block({loop})")
