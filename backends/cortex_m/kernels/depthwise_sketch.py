"""DEPTHWISE_CONV2D with the numbers that its schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.isa.isa import extends, sets_of
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import scales
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches import depthwise
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_ROWS = (1, 2, 4, 8, 16)
_PIXELS = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True)
class DepthwiseSketch:
    """DEPTHWISE_CONV2D of int8 to int8."""

    geometry: Geometry
    multiples: int
    epilogue: Epilogue
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    def program(self) -> Program:
        return algorithms.depthwise(self.geometry, self.multiples, self.epilogue)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `rows` of results whose part of the image is copied together; `pixels` whose sums
        lie in registers; `copied` pixels in a turn of the copy; `isa`; `scale`, the form of the RESCALE."""
        g = self.geometry
        return {
            "isa": tuple(sets_of(core)),
            "rows": (g.rows, *(n for n in _ROWS if n < g.rows)),
            "pixels": tuple(n for n in _PIXELS if n <= g.columns),
            "copied": tuple(dict.fromkeys(min(n, g.width) for n in (4, 8, 2, 1))),
            "scale": scales(self.constants),
        }

    def steps(self, knobs: Knobs) -> Iterator[str]:
        isa = str(knobs["isa"])
        strip = depthwise.Strip(int(knobs["rows"]), int(knobs["pixels"]), int(knobs["copied"]), isa)
        high = knobs["scale"] == "high"
        if extends(isa, "dsp"):
            if strip.pixels % 2 or self.geometry.dilation[1] > 1:
                raise RefusedError("halves are multiplied two by two")
            return depthwise.dsp_depthwise(self.geometry, self.multiples, strip, high)
        return depthwise.scalar_depthwise(self.geometry, self.multiples, strip, high)

    def cost(self, knobs: Knobs) -> float:
        pixels, rows, g = int(knobs["pixels"]), int(knobs["rows"]), self.geometry
        across, down = -(-g.columns // pixels) * pixels / g.columns, -(-g.rows // rows) * rows / g.rows
        copied = (rows * g.stride[0] + g.span[0] - g.stride[0]) / (rows * g.stride[0])
        halves = 0.8 if extends(str(knobs["isa"]), "dsp") else 1.0
        return across * down * (halves * (1 + 0.5 / pixels) + copied / 4) + (knobs["scale"] == "wide")
