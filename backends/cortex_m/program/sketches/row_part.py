"""A part of a row of results, for cores with vectors: what follows from the numbers of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, VECTORS, PixelRows


@dataclass(frozen=True)
class RowPart:
    """Some channels.

    Args:
        loop, depth: the loops over them, and over a window.
        behind: what the names of its buffers end in.
        channels: how many they are; whole vectors of results where nothing is behind the names of the first part.
        loops: how many loops over a window, or a part of it, there are before it is scheduled.
    """

    s: PixelRows
    loop: str
    depth: str
    behind: str
    channels: int
    loops: int

    @property
    def whole(self) -> bool:
        """Whether results are whole vectors of bytes."""
        return self.s.whole > 0 and not self.behind

    @property
    def block(self) -> int:
        """Channels whose sums lie in scratch memory at a time."""
        return self.s.block if self.channels % self.s.block == 0 else self.channels

    @property
    def inner(self) -> str:
        """The loop over a block."""
        if not self.s.constant:
            return f"{self.loop}m{'b' * self.s.result.column_terms}"
        return self.loop if self.block == self.channels else f"{self.loop}m"

    @property
    def epilogue_unroll(self) -> int:
        """Vectors of results in an iteration."""
        return self.s.epilogue_unroll if self.block % (LANES * self.s.epilogue_unroll) == 0 else 1

    @property
    def pixel(self) -> str:
        """The loop over the pixels of a tile; none over one."""
        return f"{self.s.pixel}{self.behind}" if self.s.pixel else ""

    @property
    def epilogue(self) -> str:
        """The loop of which an iteration is one block, of the epilogue of a block of channels."""
        return f"{self.inner}b"

    @property
    def fours(self) -> int:
        """Vectors of four results in an iteration: all where they are few."""
        vectors = self.block // FOUR
        if vectors <= FOUR:
            return max(1, vectors)
        return self.s.epilogue_unroll if vectors % self.s.epilogue_unroll == 0 else 1

    @property
    def shared(self) -> str:
        """The loop over pixels that share one reading of the factors of whole vectors; none over one."""
        if self.s.share == 1:
            return ""
        return self.pixel if self.s.share == self.s.together else "xr"

    @property
    def over_pixels(self) -> bool:
        """Whether a hardware loop of the epilogue of whole vectors goes over pixels, as one iteration takes all
        channels."""
        s = self.s
        return self.block == LANES * self.epilogue_unroll and s.share < s.together and s.together % s.share == 0

    @property
    def unrolled(self) -> int:
        """Pixels in an iteration of a hardware loop over them."""
        result = self.s.result
        if result.terms and (result.table or result.clamped):
            return 1
        return next(n for n in (4, 3, 2, 1) if self.s.together % n == 0)

    @property
    def ahead(self) -> int:
        """Loads of the epilogue that run an iteration ahead: of pixels with factors that stay sums alone are loaded, as
        far as there are registers."""
        s = self.s
        if self.whole or not self.pixel:
            return s.epilogue_ahead
        free = VECTORS - len(s.result.factors) - len(s.result.bounds) - s.result.narrowed
        return min(s.epilogue_ahead, self.unrolled, free - 1)

    @property
    def epilogues(self) -> list[tuple[str, str, int]]:
        """The blocks of its epilogue: the loop of which an iteration is one, its hardware loop, and the iterations of
        that."""
        if self.s.parts:
            return []
        if self.whole and self.over_pixels:
            return [(self.epilogue, self.pixel, self.s.together // self.s.share)]
        if self.whole:
            return [(self.epilogue, "nf", self.block // (LANES * self.epilogue_unroll))]
        whole, left = divmod(self.block, FOUR)
        behind = "_t" * (whole > 0)
        if self.pixel:
            iterations = self.s.together // self.unrolled
            names = [(self.epilogue, self.pixel)] * (whole > 0)
            names += [(f"{self.epilogue}{behind}", f"{self.pixel}{behind}")] * (left > 0)
            return [(*each, iterations) for each in names]
        found = [(self.epilogue, "nq", whole // self.fours)] if whole else []
        return found + ([(f"{self.epilogue}{behind}", "", 1)] if left else [])

    @property
    def in_place(self) -> tuple[str, str, int]:
        """The block of sums of columns that are read in place: the loop of which an iteration is one, its hardware
        loop, and the iterations of that."""
        s, columns = self.s, f"sj{self.behind}"
        if s.unroll:
            return "th" if self.whole else columns, self.column, s.vectors // s.unroll
        if self.whole and not s.pairs:
            return columns, "ti", FOUR
        return f"{self.loop}m", columns, self.columns_apart

    @property
    def column(self) -> str:
        """The loop over a column that is read in place."""
        return f"{'z' * self.s.result.column_terms}k{self.behind}"

    @property
    def columns_apart(self) -> int:
        """Columns of a block, or sixteens of them, one behind the other."""
        return self.block // LANES if self.whole else self.block

    @property
    def once(self) -> int:
        """Channels whose constants are copied at a time."""
        return self.block if self.s.blocks_outside else self.channels

    def named(self, name: str) -> str:
        """A buffer that other parts have, too, by its name in this one."""
        return f"{name}{self.behind}"
