"""The sketch of DEPTHWISE_CONV2D of bytes at stride 2 for cores with vectors: schedules of `algorithms.depthwise`, the
padded image copied from space to depth.

A word holds two rows and two columns of a channel, and is copied once for all rows of results that are computed from
the copy. Four words that are gathered are a spatial tile, which holds one window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES
from tosaic.backends.cortex_m.program.sketches.spatial_tile_numbers import PAIR, SpatialTiles, channels
from tosaic.backends.cortex_m.program.sketches.spatial_tiles import epilogue, rescaled, tile_loops, tiles_as_blocks
from tosaic.backends.cortex_m.program.sketches.tiles import hardware_loop

WINDOW = 2 * PAIR
"""Rows and columns of a spatial tile."""


def from_space_to_depth(t: SpatialTiles) -> Iterator[str]:
    """The steps of a schedule."""
    copy = DepthCopy(t)
    yield from rescaled(t)
    yield from tile_loops(t)
    yield from copy.apart()
    yield from _windows()
    yield from copy.laid_out()
    yield from _products(t)
    yield from epilogue(t)
    yield from copy.shaped()
    if t.skips:
        yield f"skip({t.tile}, S{', S_1' * t.paired})"
    yield from copy.hardware_loops()
    yield from tiles_as_blocks(t)


def _windows() -> Iterator[str]:
    """The loops over a window, word by word."""
    yield from ("distribute(sx)", f"split(ky, kyr, {PAIR})", f"split(kx, kxr, {PAIR})", "reorder(kyr, kx)")


def _products(t: SpatialTiles) -> Iterator[str]:
    """Products of spatial tiles and weights."""
    yield from ("pack(w)", *([] if t.whole else ["merge_dims(w, 0)"]), *["merge_dims(w, 1)"] * 3)
    yield from (f"stage(w, {t.channel}, vw, q)", "stage(P, sxb, v, scratch)", "merge_dims(v, 0)", "merge_dims(v, 0)")
    yield from ("fuse(kyr, kxr)", "fuse(kx, kxr)", "fuse(ky, kxr)", "place(v, q)")


@dataclass(frozen=True)
class DepthCopy:
    """How the image is copied."""

    t: SpatialTiles

    @property
    def words(self) -> int:
        """Rows of words."""
        return self.t.height + 1

    @property
    def beyond(self) -> tuple[int, int]:
        """Rows of the image with its padding above that and below, which words hold in part, or alone."""
        g = self.t.geometry
        return g.pad[0], max(0, (g.rows - 1) * g.stride[0] + WINDOW - g.pad[0] - g.height)

    @property
    def sides(self) -> list[tuple[str, str]]:
        """The loops over rows and columns of the padding on both sides of the image."""
        left, _, right = self.t.loops
        return [(row, column) for row, column in ((left, "cl"), (right, "cr")) if row]

    @property
    def parts(self) -> dict[str, tuple[int, bool]]:
        """What the names of copies of rows of words end in: how many these are, and whether they may lie beyond the
        image."""
        above, below = (-(-rows // PAIR) for rows in self.beyond)
        runs = [(above, True), (self.words - above - below, False), (below, True)]
        return {"_t" * number: run for number, run in enumerate(run for run in runs if run[0])}

    def apart(self) -> Iterator[str]:
        """The loops over words, and over their rows and columns; the padding on both sides once for all."""
        image = self.t.loops[1]
        if self.sides:
            yield from ("distribute(cy)", "distribute(cn)")
        for row, column in [*self.sides, (image, "cx")]:
            channel = channels(row)
            yield from (f"reorder({channel}, {row})", f"reorder({channel}, {column})")
            yield from (f"split({row}, {row}r, {PAIR})", f"split({column}, {column}r, {PAIR})")
            yield from (f"reorder({row}r, {column})", f"reorder({column}r, {channel})", f"reorder({row}r, {channel})")
        yield from (f"once({row}, y)" for row, _ in self.sides)

    def laid_out(self) -> Iterator[str]:
        """Words in rows, each with all channels; the padding by vectors."""
        yield from (f"divide_dim(P, 3, {PAIR})", f"divide_dim(P, 1, {PAIR})", "reorder_dims(P, d041352)")
        for row, column in self.sides:
            yield from (f"drop({column})", f"fuse({row}r, {column}r)", f"fuse({channels(row)}, {column}r)")
            yield f"split({column}r, {row}v, {LANES})"
            yield from (f"stage(P, {column}r, f{column}, q)", f"stage(edge, {row}, edge_{column}, r)")

    def shaped(self) -> Iterator[str]:
        """Two pixels of two rows side by side, by whole vectors."""
        row = self.t.loops[1]
        channel, size = channels(row), PAIR * PAIR
        yield from (f"split({channel}, cv, {LANES})", f"reorder(cx, {channel})")
        yield from (f"reorder(cv, {row}r)", "reorder(cv, cxr)")
        tails = list(self.parts)
        yield from (f"cut({row}{tail}, {self.parts[tail][0]})" for tail in tails[:-1])
        if any(self.beyond):
            yield "stage(edge, y, edge_r, r)"
        for tail, (_, beyond) in self.parts.items():
            va, vb = (f"v{letter}{tail.replace('_', '')}" for letter in "ab")
            yield f"stage(P, cx{tail}, {va}, scratch)"
            yield from (f"split({va}0, {vb}, {size})", f"divide_dim({va}, 0, {size})", f"reorder_dims({va}, d10)")
            yield f"place({va}, q)"
            if beyond:
                yield from (f"drop({row}{tail})", f"tell({channel}{tail}, y)")
            elif any(self.beyond):
                yield f"decide({row}{tail})"

    def hardware_loops(self) -> Iterator[str]:
        """The loops of copies, which become hardware loops."""
        blocks = self.t.geometry.rows // self.t.height
        for tail, (_, beyond) in self.parts.items():
            for kind in range(min(2, blocks) if beyond else 1):
                yield from hardware_loop(f"cx{tail}" + f"_{kind}" * (kind > 0), self.t.inside // PAIR, early=False)
        for row, _ in self.sides:
            yield from hardware_loop(row, self.words, early=False)
