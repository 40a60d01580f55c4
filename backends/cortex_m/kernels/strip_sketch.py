"""CONV2D of windows of several pixels, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.program import strips
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.image_strips import LEFT, RIGHT, ImageStrip
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR
from tosaic.backends.cortex_m.program.sketches.tiles import tile_sizes
from tosaic.backends.cortex_m.program.tree import BYTES, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TALL = (4, 8, 2, 1, 16)
"""Rows of results that a strip serves."""
_MOST_TALL = 32
"""Rows of an image that one strip may serve."""
_MOST_RUNS, _MOST_COPIED = 320, 1 << 14
"""Vectors of a window that are copied, and bytes of all of them."""


@dataclass(frozen=True)
class StripSketch(PixelSketch):
    """CONV2D whose windows are read from strips of the padded image; see `sketches.strips`.

    Args:
        in_place: whether windows that lie in the image are read there, and each tile of pixels with others has a strip
            of its own.
    """

    in_place: bool = False
    compared: ClassVar[int] = 4
    near: ClassVar[float] = 1.02
    price: ClassVar[int] = 16
    little: ClassVar[int] = 0

    def program(self) -> Program:
        return strips.conv2d(self.geometry, self.channels, self.epilogue, self.element, self.in_place)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tall`, rows of results that a strip serves; others as of `PixelSketch`."""
        found = super().knobs(core)
        return found if self.in_place else {"tall": self._talls, **found}

    @property
    def _talls(self) -> tuple[int, ...]:
        rows = self.geometry.rows
        if self.in_place:
            return (1,)
        return tuple(n for n in _TALL if n < rows) + (rows,) * (rows <= _MOST_TALL)

    def groups(self, knobs: Mapping[str, Sequence[Choice]], site: Site) -> Iterator[Iterable[dict[str, Choice]]]:
        for tall in self._talls:
            yield from self.groups_with({} if self.in_place else {"tall": tall}, knobs, site)

    def some_together(self, choices: Sequence[Choice], row: int, pixels: int, width: int, block: int) -> list[int]:
        """Those of one tile where each has a strip: what takes the least working memory takes the least time, too."""
        return [pixels] if self.in_place else super().some_together(choices, row, pixels, width, block)

    def tiles(self, together: int, pixels: int) -> int:
        return 1 if self.in_place else super().tiles(together, pixels)

    @property
    def depth(self) -> int:
        return round_up(run_of(self.geometry), self.window_lanes)

    @property
    def taps(self) -> int:
        return math.prod(self._parts)

    @property
    def _parts(self) -> tuple[int, int]:
        """Rows and columns of parts of a window that are read on their own."""
        g = self.geometry
        return g.kernel[0], g.kernel[1] if strips.has_gaps(g) else 1

    def strip(self, knobs: Knobs) -> ImageStrip:
        """How windows are read.

        Raises:
            RefusedError: they cannot be read so with these numbers.
        """
        g, tall = self.geometry, int(knobs.get("tall", 1))
        if int(knobs["held"]) or int(knobs["unroll"]):
            raise RefusedError("windows of several rows do not stay in registers, nor have a loop over their depth")
        height = (tall - 1) * g.stride[0] + g.span[0]
        parts = strips.row_elements(g)
        last = (g.columns - 1) * g.stride[1] + (self._parts[1] - 1) * g.dilation[1]
        pitch = max(sum(parts), last * g.channels + self.depth)
        short = run_of(g) % self.window_lanes > 0
        found = ImageStrip(
            g.rows, tall, height, pitch, self._parts, *parts, any(g.pad[:2]), short, element=self.element
        )  # fmt: skip
        if not self.in_place:
            return found
        (pixels, _), together = tile_sizes(str(knobs["tile"])), int(knobs["together"])
        if together % pixels:
            raise RefusedError(f"{together} pixels are not tiles of {pixels}")
        return _of_tiles(found, g, together, pixels, self.depth, "sx" if together > 1 else "x")


@dataclass(frozen=True)
class GatheredSketch(StripSketch):
    """CONV2D whose windows are copied side by side from strips of the padded image; see `sketches.strips`."""

    near: ClassVar[float] = 1.0025
    compared: ClassVar[int] = 4
    price: ClassVar[int] = 13
    little: ClassVar[int] = 16

    def program(self) -> Program:
        return strips.gathered(self.geometry, self.channels, self.epilogue, self.element, self.in_place)

    def some_together(self, choices: Sequence[Choice], row: int, pixels: int, width: int, block: int) -> list[int]:
        return PixelSketch.some_together(self, choices, row, pixels, width, block)

    def tiles(self, together: int, pixels: int) -> int:
        return PixelSketch.tiles(self, together, pixels)

    @property
    def depth(self) -> int:
        return round_up(self.part, self.window_lanes)

    @property
    def taps(self) -> int:
        return 1

    def row(self, knobs: Knobs) -> int:
        return int(knobs.get("tall", 1)) * self.geometry.columns

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(n * self.geometry.columns for n in self._talls)

    def strip(self, knobs: Knobs) -> ImageStrip:
        g, tall = self.geometry, int(knobs.get("tall", 1))
        windows = int(knobs["together"]) if self.in_place else self.row(knobs)
        if windows * self.pitch * BYTES[self.element] > _MOST_COPIED:
            raise RefusedError("so many windows take too much memory")
        if windows == g.kernel[0] == 1:
            raise RefusedError("no loop copies the one row of a window")
        gaps = strips.has_gaps(g)
        runs = run_of(g), g.kernel[0] * (g.kernel[1] if gaps else 1)
        run = "qkx" if gaps else "qky" if g.kernel[0] > 1 else "qx"
        if runs[1] * -(-runs[0] // self.window_lanes) > _MOST_RUNS:
            raise RefusedError(f"{runs[1]} parts of a window are too many to write out")
        height, parts = (tall - 1) * g.stride[0] + g.span[0], strips.row_elements(g)
        short = self.part % self.window_lanes > 0
        found = ImageStrip(
            g.rows, tall, height, sum(parts), (1, 1), *parts, any(g.pad[:2]), short, runs, run, windows=windows,
            element=self.element,
        )  # fmt: skip
        if not self.in_place:
            four = self.element == "i8" and runs[0] == FOUR <= runs[1] and run == "qky" and windows > 1
            return replace(found, gathered=four and sum(parts) % 2 == g.stride[1] * g.channels % 2 == 0)
        read, loop = max(runs[0], self.window_lanes), "y" if windows == g.columns else "x"
        row = _of_row(found, g, read) if windows == g.columns and run != "qx" else None
        return row or _of_tiles(found, g, windows, windows, read, loop)


def _of_row(s: ImageStrip, g: Geometry, read: int) -> ImageStrip | None:
    """The strips of a row of windows; None where no window at a side, or every one, reaches padding."""
    step, pad, span = g.stride[1], g.pad[2], g.span[1]
    left = -(-pad // step)
    right = max(0, g.columns - 1 - (g.width + pad - span) // step)
    if not s.above or left + right not in range(1, g.columns):
        return None

    def part(first: int, windows: int, edges: int) -> ImageStrip:
        start, width = first * step - pad, ((windows - 1) * step + span) * g.channels
        beyond = start + (windows - 1) * step + span - g.width
        return replace(
            s, pitch=max(width, width - run_of(g) + read), left=max(0, -start) * g.channels, whole=width,
            right=max(0, beyond) * g.channels, tile="y", edges=(edges, g.rows), pixel=g.channels, windows=windows,
        )  # fmt: skip

    sides = [replace(part(0, left, g.rows), own=LEFT)] if left else []
    sides += [replace(part(g.columns - right, right, g.rows), own=RIGHT)] if right else []
    found = part(left, g.columns - left - right, g.rows - _rows_inside(g))
    return replace(found, windows=g.columns, sides=tuple(sides))


def _rows_inside(g: Geometry) -> int:
    """Rows whose windows lie in the rows of the image."""
    return sum(0 <= y * g.stride[0] - g.pad[0] <= g.height - g.span[0] for y in range(g.rows))


def _of_tiles(s: ImageStrip, g: Geometry, together: int, pixels: int, read: int, loop: str) -> ImageStrip:
    """The strips of tiles of pixels.

    Args:
        together: pixels whose sums lie in scratch memory at a time, some tiles.
        read: elements that are read together.
        loop: over tiles.
    """
    columns = (pixels - 1) * g.stride[1] + g.span[1]
    starts = [
        min(x, g.columns - together) + tile
        for x in range(0, g.columns, together)
        for tile in range(0, together, pixels)
    ]
    across = sum(0 <= x * g.stride[1] - g.pad[2] <= g.width - columns for x in starts)
    tiles, width = g.rows * len(starts), columns * g.channels
    beyond = (g.columns - 1) * g.stride[1] + g.span[1] - g.pad[2] - g.width
    return replace(
        s,
        pitch=max(width, width - run_of(g) + read),
        left=g.pad[2] * g.channels,
        whole=width,
        right=max(0, beyond) * g.channels,
        tile=loop,
        edges=(tiles - across * _rows_inside(g), tiles),
        pixel=g.channels,
    )


def run_of(g: Geometry) -> int:
    """Elements of a window that lie together."""
    return g.channels if strips.has_gaps(g) else g.kernel[1] * g.channels
