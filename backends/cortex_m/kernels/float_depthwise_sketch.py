"""DEPTHWISE_CONV2D of floats with the numbers that its schedules on cores with a floating-point unit leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program import floats
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.depthwise import Strip, float_depthwise
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_ROWS = (1, 2, 4, 8, 16)
_PIXELS = (6, 5, 4, 3, 2, 8, 1)
_MOST_TAPS = 26
"""Elements of a row that are written out."""


@dataclass(frozen=True)
class ScalarFloatDepthwise:
    """DEPTHWISE_CONV2D, a result a channel, of floats in registers of one float each."""

    geometry: Geometry
    clamped: bool
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    def program(self) -> Program:
        return floats.copied_depthwise_f32(self.geometry, self.clamped)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open.

        `rows` of results have their part of the image copied together. `pixels` of a row have their sums in registers.
        An iteration of the copy moves `copied` pixels.
        """
        g = self.geometry
        return {
            "rows": (g.rows, *(n for n in _ROWS if n < g.rows)),
            "pixels": tuple(n for n in _PIXELS if n <= g.columns),
            "copied": tuple(dict.fromkeys(min(n, g.width) for n in (4, 8, 2, 1))),
        }

    def strip(self, knobs: Knobs) -> Strip:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        g, strip = self.geometry, Strip(int(knobs["rows"]), int(knobs["pixels"]), int(knobs["copied"]), "fp")
        if (strip.pixels - 1) * g.stride[1] + g.span[1] > _MOST_TAPS:
            raise RefusedError(f"rows of {strip.pixels} windows are too much to write out")
        return strip

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return float_depthwise(self.geometry, self.strip(knobs), self.clamped)

    def cost(self, knobs: Knobs) -> float:
        """About the cycles of a product, in units of three."""
        strip, g = self.strip(knobs), self.geometry
        across = -(-g.columns // strip.pixels) * strip.pixels / g.columns
        down = -(-g.rows // strip.rows) * strip.rows / g.rows
        copied = (strip.rows * g.stride[0] + g.span[0] - g.stride[0]) / (strip.rows * g.stride[0])
        return across * down * (1 + 0.7 / strip.pixels) + copied / 4
