"""CONV2D of windows of several pixels, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.program import strips
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, ImageStrip
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TALL = (4, 8, 2, 1, 16)
"""Rows of results that a strip serves."""
_MOST_TALL = 32
"""Rows of an image that one strip may serve."""
_MOST_RUNS, _MOST_COPIED = 100, 1 << 14
"""Vectors of a window that are copied, and bytes of all of them."""


@dataclass(frozen=True)
class StripSketch(PixelSketch):
    """CONV2D of int8 whose windows are read from strips of the padded image; see `sketches.strips`."""

    compared: ClassVar[int] = 6
    near: ClassVar[float] = 1.02
    price: ClassVar[int] = 16

    def program(self) -> Program:
        return strips.conv2d(self.geometry, self.channels, self.epilogue)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tall`, rows of results that a strip serves; others as of `PixelSketch`."""
        return {"tall": self._talls, **super().knobs(core)}

    @property
    def _talls(self) -> tuple[int, ...]:
        rows = self.geometry.rows
        return tuple(n for n in _TALL if n < rows) + (rows,) * (rows <= _MOST_TALL)

    def guesses(self, knobs: Mapping[str, Sequence[Choice]], site: Site) -> Iterator[dict[str, Choice]]:
        for tall in knobs["tall"]:
            yield from self.guesses_with({"tall": tall}, knobs, site)

    @property
    def depth(self) -> int:
        return round_up(run_of(self.geometry), LANES)

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
        g, tall = self.geometry, int(knobs["tall"])
        if int(knobs["held"]) or int(knobs["unroll"]):
            raise RefusedError("windows of several rows do not stay in registers, nor have a loop over their depth")
        height = (tall - 1) * g.stride[0] + g.span[0]
        parts = strips.row_bytes(g)
        last = (g.columns - 1) * g.stride[1] + (self._parts[1] - 1) * g.dilation[1]
        pitch = max(sum(parts), last * g.channels + self.depth)
        return ImageStrip(g.rows, tall, height, pitch, self._parts, *parts, any(g.pad[:2]), run_of(g) % LANES > 0)


@dataclass(frozen=True)
class GatheredSketch(StripSketch):
    """CONV2D of int8 whose windows are copied side by side from strips of the padded image; see `sketches.strips`."""

    near: ClassVar[float] = 1.0025
    compared: ClassVar[int] = 4
    price: ClassVar[int] = 13

    def program(self) -> Program:
        return strips.gathered(self.geometry, self.channels, self.epilogue)

    @property
    def depth(self) -> int:
        return round_up(self.geometry.depth, LANES)

    @property
    def taps(self) -> int:
        return 1

    def row(self, knobs: Knobs) -> int:
        return int(knobs["tall"]) * self.geometry.columns

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(n * self.geometry.columns for n in self._talls)

    def strip(self, knobs: Knobs) -> ImageStrip:
        g, tall = self.geometry, int(knobs["tall"])
        if self.row(knobs) * self.depth > _MOST_COPIED:
            raise RefusedError("so many windows take too much memory")
        gaps = strips.has_gaps(g)
        runs = run_of(g), g.kernel[0] * (g.kernel[1] if gaps else 1)
        run = "qkx" if gaps else "qky" if g.kernel[0] > 1 else "qx"
        if runs[1] * -(-runs[0] // LANES) > _MOST_RUNS:
            raise RefusedError(f"{runs[1]} parts of a window are too many to write out")
        height, parts = (tall - 1) * g.stride[0] + g.span[0], strips.row_bytes(g)
        short = g.depth % LANES > 0
        return ImageStrip(
            g.rows, tall, height, sum(parts), (1, 1), *parts, any(g.pad[:2]), short, runs, run, self.row(knobs)
        )


def run_of(g: Geometry) -> int:
    """Bytes of a window that lie together."""
    return g.channels if strips.has_gaps(g) else g.kernel[1] * g.channels
