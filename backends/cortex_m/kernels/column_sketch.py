"""CONV2D of columns of one channel, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.vector_conv2d import VectorConv2d
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.columns import ColumnTiles, columns
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_EPILOGUE = 12
"""Cycles of four results."""


@dataclass(frozen=True)
class ColumnSketch(VectorConv2d):
    """CONV2D of int8 whose windows are columns of one channel; see `sketches.columns`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `vectors` of sums, and `ahead`, loads that run an iteration ahead."""
        return {"vectors": (4, 3, 2, 1), "ahead": (2, 1, 0)}

    def numbers(self, knobs: Knobs) -> ColumnTiles:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        found = ColumnTiles(self.geometry.columns, self.result, int(knobs["vectors"]), int(knobs["ahead"]))
        if FOUR * found.vectors > found.row:
            raise RefusedError(f"{found.row} pixels have no {found.vectors} vectors")
        if found.ahead > found.vectors:
            raise RefusedError(f"an iteration has no {found.ahead} loads to run ahead")
        return found

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return columns(self.numbers(knobs))

    def cost(self, knobs: Knobs) -> float:
        s, taps = self.numbers(knobs), self.geometry.kernel[0]
        iteration = 2 * s.vectors + 3 + 2 * (s.ahead == 0)
        return -(-s.row // (FOUR * s.vectors)) * (taps * iteration + _EPILOGUE * s.vectors + 20 + s.ahead / 4)


def is_column(geometry: Geometry, channels: int) -> bool:
    """Whether windows are columns of one channel of an image without padding, each of which gives one result."""
    g = geometry
    alone = g.channels == channels == g.kernel[1] == g.stride[1] == 1
    return alone and g.kernel[0] > 1 and g.columns >= FOUR and not any(g.pad)
