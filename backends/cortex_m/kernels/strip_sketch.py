"""CONV2D of windows of several pixels, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.program import strips
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, Strip
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TALL = (4, 8, 2, 1, 16)
"""Rows of results that a strip serves."""


@dataclass(frozen=True)
class StripSketch(PixelSketch):
    """CONV2D of int8 whose windows are read from strips of the padded image; see `sketches.strips`."""

    compared: ClassVar[int] = 6
    price: ClassVar[int] = 10

    def program(self) -> Program:
        return strips.conv2d(self.geometry, self.channels, self.epilogue)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tall`, rows of results that a strip serves; others as of `PixelSketch`."""
        rows = self.geometry.rows
        return {"tall": tuple(n for n in _TALL if n < rows) + (rows,) * (rows <= max(_TALL)), **super().knobs(core)}

    def guesses(self, knobs: Mapping[str, Sequence[Choice]], site: Site) -> Iterator[dict[str, Choice]]:
        for each in super().guesses(knobs, site):
            yield from (each | {"tall": tall} for tall in knobs["tall"])

    @property
    def depth(self) -> int:
        return round_up(self.geometry.kernel[1] * self.geometry.channels, LANES)

    @property
    def taps(self) -> int:
        return self.geometry.kernel[0]

    def strip(self, knobs: Knobs) -> Strip:
        """How windows are read.

        Raises:
            RefusedError: they cannot be read so with these numbers.
        """
        if int(knobs["held"]) or int(knobs["unroll"]):
            raise RefusedError("windows of several rows do not stay in registers, nor have a loop over their depth")
        g, tall = self.geometry, int(knobs["tall"])
        height = (tall - 1) * g.stride[0] + g.span[0]
        parts = strips.row_bytes(g)
        pitch = max(sum(parts), (g.columns - 1) * g.stride[1] * g.channels + self.depth)
        short = g.kernel[1] * g.channels % LANES > 0
        return Strip(g.rows, tall, height, pitch, self.taps, *parts, any(g.pad[:2]), short)
