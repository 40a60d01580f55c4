"""The numbers of schedules of depthwise convolutions by spatial tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, RowResult

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
