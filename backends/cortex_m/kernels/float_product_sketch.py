"""CONV2D and MATMUL of floats with the numbers that their schedules on cores with a floating-point unit leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program import floats
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.float_products import FloatTile, float_products
from tosaic.backends.cortex_m.program.sketches.tiles import tile_sizes
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TILES = (
    *("3x4", "4x3", "2x6", "6x2", "2x5", "5x2", "2x4", "4x2", "3x3", "2x3", "3x2", "2x2"),
    *("1x8", "8x1", "1x6", "1x5", "1x4", "4x1", "1x3", "3x1", "1x2", "2x1", "1x1"),
)
_UNROLLED = (8, 16, 4, 12, 6, 10, 7, 5, 9, 3, 2, 1)


@dataclass(frozen=True)
class ScalarFloatProduct:
    """CONV2D, or MATMUL, of floats in registers of one float each.

    Args:
        geometry: of the windows; of a MATMUL, of windows of one pixel in images of one row.
        channels: of the output.
        constant: whether the second factor is weights.
    """

    geometry: Geometry
    channels: int
    clamped: bool
    constant: bool
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def copied(self) -> bool:
        """Whether windows are copied first: they are no pixels."""
        return self.geometry.kernel != (1, 1) or any(self.geometry.pad)

    def program(self) -> Program:
        g = self.geometry
        if not self.constant:
            return floats.matmul_f32(g.batch, g.columns, g.channels, self.channels, self.clamped)
        made = floats.copied_conv2d_f32 if self.copied else floats.conv2d_f32
        return made(g, self.channels, self.clamped)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, pixels x channels of the sums in registers; `unroll`, elements of the
        depth in a block."""
        return {"tile": _TILES, "unroll": _UNROLLED}

    def tile(self, knobs: Knobs) -> FloatTile:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        pixels, channels = tile_sizes(str(knobs["tile"]))
        g, unroll = self.geometry, int(knobs["unroll"])
        if pixels > g.columns or self.channels % channels:
            raise RefusedError(f"{g.columns} pixels and {self.channels} channels have no tile of {knobs['tile']}")
        depth = g.depth if self.copied else g.channels
        if depth % unroll:
            raise RefusedError(f"{unroll} does not divide {depth}")
        left = "P" if self.copied else "a"
        return FloatTile(pixels, channels, g.columns, self.channels, depth, unroll, left, self.clamped, self.constant)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return float_products(self.tile(knobs))

    def cost(self, knobs: Knobs) -> float:
        return self.tile(knobs).cost
