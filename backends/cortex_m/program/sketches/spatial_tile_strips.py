"""The numbers of schedules of depthwise convolutions by spatial tiles, and how the strips of these are copied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, RowResult
from tosaic.backends.cortex_m.program.sketches.tiles import hardware_loop

DEEP, PAIR = 8, 2
"""Rows and columns of a deep spatial tile."""


@dataclass(frozen=True)
class SpatialTiles:
    """The numbers of a schedule.

    Args:
        multiples: results of a channel.
        rows, columns: results that share a spatial tile.
        deep: whether a spatial tile is eight rows of two columns, whose elements move on from result to result, not
            four of four.
        part: results of a row that an iteration over channels computes.
        packed: vectors of a row that an iteration of the copy packs.
        block: channels whose strips are made together.
        paired: whether two fours of results become bytes, and are stored, as one vector.
        slides: whether a spatial tile serves all windows of a part that it lies in, each `PAIR` columns from the next,
            and products stand in the order of spatial tiles.
        height: rows of results that are computed from one copy, but for those that share a spatial tile.
    """

    geometry: Geometry
    multiples: int
    result: RowResult
    rows: int
    columns: int
    deep: bool
    part: int
    packed: int
    block: int
    paired: bool = False
    slides: bool = False
    height: int = 1

    @property
    def channel(self) -> str:
        """The loop over channels, or over the results of the only one."""
        return "m" if self.alone else "n" if self.whole else "nn"

    @property
    def alone(self) -> bool:
        """Whether one channel has several results."""
        return self.geometry.channels == 1 < self.multiples

    @property
    def iterations(self) -> int:
        """Of the loop over channels."""
        return self.multiples if self.alone else self.block

    @property
    def several(self) -> bool:
        """Whether there is a loop over results of a channel around that over channels, and a dimension of weights."""
        return self.multiples > 1 and not self.alone

    @property
    def whole(self) -> bool:
        """Whether strips have all channels."""
        return self.block == self.geometry.channels

    @property
    def apart(self) -> bool:
        """Whether pixels of a strip lie apart, or those of the image that it is made of."""
        return self.groups > 1 or not self.whole

    @property
    def shared(self) -> bool:
        """Whether several results share a spatial tile."""
        return self.rows > 1

    @property
    def moves(self) -> bool:
        """Whether elements of a spatial tile of four rows move on from row to row of results.

        Weights then leave vectors to the epilogue of pairs.
        """
        return self.shared and self.paired and not (self.deep or self.large)

    @property
    def many(self) -> bool:
        """Whether results take more numbers than there are general registers."""
        return self.result.form != "rounded" and (self.result.clamped or (self.deep and self.result.table))

    @property
    def short_of_registers(self) -> bool:
        """Whether bounds stay in vectors, as there are too few general registers for them."""
        return self.many and not self.deep

    @property
    def sparing(self) -> bool:
        """Whether the numbers of a channel are read for each tile.

        They are where spatial tiles and weights fill the vectors, or the sums of several columns the general registers.
        """
        return self.deep and (self.many or (self.slides and self.result.form != "rounded"))

    @property
    def factor_lanes(self) -> bool:
        """Whether multipliers are in all lanes of a vector, so that scaled sums have the zero point."""
        return self.paired and not self.shared and self.result.form == "rounded"

    @property
    def spread(self) -> Iterator[str]:
        """The numbers that are in all lanes of a vector: the zero point, too, where a table leaves no register."""
        yield from ("zero",) if self.short_of_registers and self.result.table else ()
        yield from self.result.bounds

    @property
    def apart_parts(self) -> bool:
        """Whether there is a loop over parts of a row."""
        return self.short_of_registers or self.part < self.geometry.columns

    @property
    def tile(self) -> str:
        """The loop over tiles: fours of results, or pairs of fours."""
        return "xp" if self.apart_parts else "x"

    @property
    def passes(self) -> int:
        """Over the columns of a part, which share spatial tiles in each."""
        return PAIR // self.geometry.stride[1] if self.slides else 1

    @property
    def pairs(self) -> int:
        """Spatial tiles of a window."""
        return -(-self.extent[1] // PAIR)

    @property
    def scope(self) -> str:
        """The loop that sums live in."""
        if not self.slides:
            return self.four
        return "xq" if self.passes > 1 else self.channel

    @property
    def across(self) -> int:
        """Results of a row in four, or in as many as there are."""
        return FOUR // self.rows if self.shared else min(FOUR, self.geometry.columns)

    @property
    def tiles(self) -> int:
        """Fours of results in an iteration over channels."""
        return self.passes * -(-self.part // (self.passes * self.across))

    @property
    def four(self) -> str:
        """The loop over fours of results."""
        return "xh" if self.paired else self.tile

    @property
    def iteration(self) -> int:
        """Results of a row in an iteration of the loop over tiles."""
        return self.across * (1 + self.paired)

    @property
    def skips(self) -> bool:
        """Whether the last iteration of the loop over tiles begins early."""
        return self.part // self.passes % self.iteration > 0

    @property
    def first(self) -> str:
        """The first vector that an iteration over channels makes."""
        if not self.skips or self.part > 2 * self.iteration:
            return "u0"
        return "u0_1_e" if self.part % self.iteration <= self.across < self.iteration else "u0_e"

    @property
    def lanes(self) -> tuple[str, ...]:
        """The loops over four results."""
        return (*(("yi",) if self.shared else ()), *(("xi",) if self.across > 1 else ()))

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of the image that a spatial tile is read of."""
        g = self.geometry
        return (self.rows - 1) * g.stride[0] + g.span[0], (self.columns - 1) * g.stride[1] + g.span[1]

    @property
    def width(self) -> int:
        """Columns of the image with its padding."""
        g = self.geometry
        return (g.columns - 1) * g.stride[1] + g.span[1]

    @property
    def left(self) -> int:
        """Columns of the padding left of the image."""
        return min(self.geometry.pad[2], self.width)

    @property
    def inside(self) -> int:
        """Columns of the image that are copied."""
        return min(self.geometry.width, self.width - self.left)

    @property
    def right(self) -> int:
        """Columns of the padding right of the image."""
        return self.width - self.left - self.inside

    @property
    def groups(self) -> int:
        """Strips of four rows that windows are read of."""
        return 2 if self.deep else -(-self.extent[0] // FOUR)

    @property
    def large(self) -> bool:
        """Whether a window takes several spatial tiles of four rows and columns."""
        return not self.deep and max(self.extent) > FOUR

    @property
    def cells(self) -> bool:
        """Whether columns of four results have spatial tiles of their own."""
        return self.across > self.columns

    @property
    def loops(self) -> tuple[str, str, str]:
        """The loops over rows of the padding on the left, of the image, and of the padding on the right; empty where
        there is none."""
        names = iter(("cy", "cyb", "cyc"))
        left, image, right = (next(names) if each else "" for each in (self.left, 1, self.right))
        return left, image, right


def channels(row: str) -> str:
    """The loop over channels that stands in one over rows of a copy."""
    return row.replace("y", "n", 1)


@dataclass(frozen=True)
class StripCopy:
    """How four rows of a strip are copied.

    Args:
        group: their number among those of a spatial tile.
    """

    t: SpatialTiles
    group: int

    @property
    def letter(self) -> str:
        """What names of the copies of further rows end in."""
        return "z" * self.group

    @property
    def tail(self) -> str:
        """What names of their loops end in."""
        return "_t" * self.group

    @property
    def rows(self) -> int:
        """That a window meets, of four."""
        return min(FOUR, self.t.extent[0] - FOUR * self.group)

    @property
    def elements(self) -> int:
        """Of the image that lie together."""
        return self.t.block * (1 if self.t.apart else self.t.inside)

    @property
    def iterations(self) -> int:
        """Of the loop over vectors."""
        return -(-self.elements // (self.t.packed * LANES))

    @property
    def early(self) -> bool:
        """Whether the last of these starts early."""
        return self.elements % (self.t.packed * LANES) > 0

    def shaped(self) -> Iterator[str]:
        """Four rows of the image side by side, by whole vectors."""
        t, b, size = self.t, self.letter, self.t.packed * LANES
        row, cv, va = t.loops[1] + self.tail, f"cv{b}", f"va{b}"
        cn, cx = self.vectors, f"cx{self.tail}"
        if not t.apart and not t.alone:
            yield f"fuse(cx, {cn})"
        yield f"split({cn}, {cv}, {size}{', early' * self.early})"
        if self.by_pixel:
            yield f"reorder({cx}, {cn})"
        inner = cv
        if t.packed > 1:
            inner = f"cw{b}"
            yield f"split({cv}, {inner}, {LANES})"
        yield f"reorder({inner}, {row})"
        padded = any(t.geometry.pad[:2])
        if padded:
            yield f"distribute({inner})"
        yield f"stage(P, {cx if self.by_pixel else cn}, {va}, scratch)"
        if self.rows < FOUR:
            yield f"extend({va}1, {FOUR})"
        if t.packed > 1:
            yield from (f"split({va}0, vb{b}, {LANES})", f"divide_dim({va}, 0, {LANES})", f"reorder_dims({va}, d021)")
        else:
            yield f"reorder_dims({va}, d10)"
        yield f"place({va}, q)"
        if self.early and self.iterations > 1 and not self.by_pixel:
            yield f"cut({cn}, {self.iterations - 1}, e)"
        if padded:
            yield from () if self.group else ("stage(edge, y, edge_r, r)",)
            outermost = [cn] if self.by_pixel else [cx] if t.apart else self.parts
            yield from (f"tell({part}, y)" for part in outermost)

    @property
    def vectors(self) -> str:
        """The loop over vectors of the image."""
        return "cx" if self.t.alone else channels(self.t.loops[1] + self.tail)

    @property
    def by_pixel(self) -> bool:
        """Whether the hardware loop goes over pixels that lie apart, as there are more of them than vectors in one."""
        return self.t.apart and self.t.inside > self.iterations

    @property
    def entered(self) -> int:
        """How often the hardware loop begins for a strip."""
        return self.iterations if self.by_pixel else self.t.inside if self.t.apart else 1

    @property
    def parts(self) -> dict[str, int]:
        """The hardware loops, each with its iterations."""
        if self.by_pixel:
            return {f"cx{self.tail}": self.t.inside}
        cn = self.vectors
        return {cn: self.iterations - 1, f"{cn}_e": 1} if self.early and self.iterations > 1 else {cn: self.iterations}

    @property
    def sides(self) -> list[tuple[str, str, int]]:
        """What the padding on both sides is called, its loops, and its columns."""
        t = self.t
        sides = (("l", t.loops[0], t.left), ("r", t.loops[2], t.right))
        return [(letter, loop + self.tail, columns) for letter, loop, columns in sides if loop]

    @property
    def kinds(self) -> int:
        """Of strips: those that reach beyond the image elsewhere have code of their own."""
        t, g = self.t, self.t.geometry
        tops = (min(y, g.rows - t.rows) * g.stride[0] - g.pad[0] for y in range(0, g.rows, t.rows))
        rows = range(FOUR * self.group, FOUR * self.group + self.rows)
        return len(list(itertools.groupby([0 <= top + row < g.height for row in rows] for top in tops)))

    def extended(self) -> Iterator[str]:
        """Rows of padding that make four."""
        if self.rows < FOUR:
            yield from (f"extend({loop}, {FOUR})" for _, loop, _ in self.sides)

    def padding(self) -> Iterator[str]:
        """What lies on both sides of the image, by vectors."""
        tail = self.tail
        for letter, loop, columns in self.sides:
            lanes, early, _ = self._filled(columns)
            column, channel = f"c{letter}{tail}", channels(loop)
            inwards = [column] if self.t.alone else [column, channel]
            yield from (f"reorder({loop}, {inner})" for inner in inwards)
            if self.t.groups == 1 and not self.t.alone:
                yield f"fuse({column}, {channel})"
            yield f"fuse({inwards[-1]}, {loop})"
            yield f"split({loop}, {loop}v, {lanes}{', early' * early})"
            yield from (
                f"stage(P, {loop}, f{letter}{self.letter}, q)",
                f"stage(edge, {loop}, edge_{letter}{self.letter}s, r)",
            )

    def _filled(self, columns: int) -> tuple[int, bool, int]:
        """Bytes of a vector of padding, whether the last one starts early, and how many there are."""
        size = self.t.block * FOUR * (1 if self.t.groups > 1 else columns)
        lanes = min(size, LANES)
        return lanes, size % lanes > 0, -(-size // lanes)

    def hardware_loop(self) -> Iterator[str]:
        """The loops of copies, which become hardware loops."""
        for part, count in self.parts.items():
            for kind in range(self.kinds):
                yield from hardware_loop(part + f"_{kind}" * (kind > 0), count, early=False)
        for _, loop, columns in self.sides:
            _, early, count = self._filled(columns)
            yield from hardware_loop(loop, count, early)
