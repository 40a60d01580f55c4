"""DEPTHWISE_CONV2D with the numbers that its schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.isa.isa import extends, integer_sets_of
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import scales
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches import depthwise, pairs
from tosaic.backends.cortex_m.program.sketches.depthwise import Strip
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_PAIRS = ("row", "column")
_ROWS = (1, 2, 4, 8, 16)
_PIXELS = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True)
class DepthwiseSketch:
    """DEPTHWISE_CONV2D.

    Args:
        element: the type of the input.
    """

    geometry: Geometry
    multiples: int
    epilogue: Epilogue
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    element: str = "i8"

    def program(self) -> Program:
        return algorithms.depthwise(self.geometry, self.multiples, self.epilogue, self.element)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `rows` of results whose part of the image is copied together; `tile`, where the
        results lie whose sums are in registers: of two channels, in a `row` or a `column`, or of one, from `words` in a
        block or as C reads a `channel`; `pixels` of it;
        `copied` pixels in an iteration of the copy; `isa`; `scale`, the form of the RESCALE."""
        g, isas = self.geometry, tuple(integer_sets_of(core))
        halves = any(extends(isa, "dsp") for isa in isas)
        paired = _PAIRS if halves and g.channels % 4 == 0 and self.element == "i8" else ()
        return {
            "isa": isas,
            "tile": (*paired, "words", "channel"),
            "rows": (g.rows, *(n for n in _ROWS if n < g.rows)),
            "pixels": tuple(n for n in _PIXELS if n <= max(g.columns, g.rows if paired else 0)),
            "copied": tuple(dict.fromkeys(min(n, g.width) for n in (4, 8, 2, 1))),
            "scale": scales(self.constants),
        }

    def strip(self, knobs: Knobs) -> Strip:
        g, isa, paired = self.geometry, str(knobs["isa"]), knobs["tile"] in _PAIRS
        strip = Strip(int(knobs["rows"]), int(knobs["pixels"]), int(knobs["copied"]), isa, knobs["tile"] == "column")
        if strip.pixels > (strip.rows if strip.down else g.columns):
            raise RefusedError(f"a {knobs['tile']} has no {strip.pixels} pixels")
        if paired and (knobs["scale"] != "high" or strip.pixels == 1 or not extends(isa, "dsp")):
            raise RefusedError("pairs are halves, of two pixels and more, with a RESCALE of high words")
        if paired and not pairs.fits(g, strip):
            raise RefusedError(f"sums of {strip.pixels} pixels leave too few registers")
        if knobs["tile"] == "words" and extends(isa, "dsp"):
            raise RefusedError("halves are no words")
        if knobs["tile"] == "channel" and extends(isa, "dsp") and (strip.pixels % 2 or g.dilation[1] > 1):
            raise RefusedError("halves are multiplied two by two")
        return strip

    def steps(self, knobs: Knobs) -> Iterator[str]:
        strip, high = self.strip(knobs), knobs["scale"] == "high"
        if knobs["tile"] in _PAIRS:
            return pairs.paired_depthwise(self.geometry, self.multiples, strip)
        if knobs["tile"] == "words":
            return depthwise.word_depthwise(self.geometry, self.multiples, strip, high, extends(strip.isa, "thumb"))
        if extends(strip.isa, "dsp"):
            return depthwise.dsp_depthwise(self.geometry, self.multiples, strip, high, self.element == "i8")
        return depthwise.scalar_depthwise(self.geometry, self.multiples, strip, high)

    def cost(self, knobs: Knobs) -> float:
        """About the cycles of a product, in units of three."""
        strip, g = self.strip(knobs), self.geometry
        extent = strip.rows if strip.down else g.columns
        across = -(-extent // strip.pixels) * strip.pixels / extent
        down = -(-g.rows // strip.rows) * strip.rows / g.rows
        copied = (strip.rows * g.stride[0] + g.span[0] - g.stride[0]) / (strip.rows * g.stride[0])
        if knobs["tile"] in _PAIRS:
            return across * down * pairs.cost_of(g, strip) + copied / 12
        halves = 0.8 if extends(strip.isa, "dsp") or knobs["tile"] == "words" else 1.0
        return across * down * (halves * (1 + 0.5 / strip.pixels) + copied / 4) + (knobs["scale"] == "wide")
