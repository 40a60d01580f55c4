"""DEPTHWISE_CONV2D of bytes at stride 2 with the numbers that its schedules on cores with vectors leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form, sums_fit
from tosaic.backends.cortex_m.kernels.spatial_tile_sketch import SpatialTileSketch, check_fours, copy_cycles
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, RowResult
from tosaic.backends.cortex_m.program.sketches.space_to_depth import WINDOW, DepthCopy, from_space_to_depth
from tosaic.backends.cortex_m.program.sketches.spatial_tile_numbers import PAIR, SpatialTiles
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_REACH, _MOVED = 1016, 2.75
"""Bytes that accesses from one vector of addresses reach, and cycles to move it on."""


@dataclass(frozen=True)
class SpaceToDepthSketch(SpatialTileSketch):
    """DEPTHWISE_CONV2D; see `sketches.space_to_depth`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `height`, the rows of results that are computed from one copy; the others as of
        spatial tiles."""
        known, rows = super().knobs(core), self.geometry.rows
        heights = tuple(n for n in range(rows, 1, -1) if rows % n == 0)
        return {"height": heights, **{name: known[name] for name in ("part", "paired", "block")}}

    def numbers(self, knobs: Knobs) -> SpatialTiles:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        epilogue = self.epilogue
        result = RowResult(self.form, epilogue.element, epilogue.clamped, epilogue.table, fits=self.fits)
        part, paired, block, height = (int(knobs[name]) for name in ("part", "paired", "block", "height"))
        t = SpatialTiles(self.geometry, 1, result, 1, 1, False, part, 1, block, paired > 0, height=height)
        check_fours(t)
        if t.block % LANES:
            raise RefusedError(f"{t.block} channels are no whole vectors")
        return t

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return from_space_to_depth(self.numbers(knobs))

    def least_bytes(self, knobs: Knobs) -> int:
        t = self.numbers(knobs)
        return FOUR * (t.height + 1) * t.width // PAIR * t.block

    def cost(self, knobs: Knobs) -> float:
        t, g = self.numbers(knobs), self.geometry
        moved = FOUR * t.block * t.part // _REACH * _MOVED
        return super().cost(knobs) + g.batch * g.rows * g.channels * (g.columns // t.part) * moved

    def copied(self, t: SpatialTiles) -> float:
        vectors = t.block // LANES
        return DepthCopy(t).words / t.height * copy_cycles(vectors * t.inside // PAIR, 1, vectors)


def space_to_depth_sketch(
    geometry: Geometry, epilogue: Epilogue, constants: Mapping[str, np.ndarray]
) -> SpaceToDepthSketch | None:
    """The sketch of a layer; None where its windows lie in no two by two words, or words hold both pixels and padding
    of a row. Where a window begins within a word, it has weights of zero before it."""
    g, before = geometry, (geometry.pad[0] % PAIR, geometry.pad[2] % PAIR)
    span = tuple(at + kernel for at, kernel in zip(before, g.kernel, strict=True))
    if g.stride != (PAIR, PAIR) or g.dilation != (1, 1) or max(span) > WINDOW or g.width % PAIR or g.rows < PAIR:
        return None
    above, left = g.pad[0] + before[0], g.pad[2] + before[1]
    below, right = (
        max(0, (results - 1) * PAIR + WINDOW - at - size)
        for results, at, size in ((g.rows, above, g.height), (g.columns, left, g.width))
    )
    if max(above, below, left, right) > PAIR:
        return None
    filled = np.zeros((g.channels, WINDOW, WINDOW), constants["w"].dtype)
    filled[:, before[0] : span[0], before[1] : span[1]] = constants["w"].reshape(-1, *g.kernel)
    whole = replace(g, kernel=(WINDOW, WINDOW), pad=(above, below, left, right))
    constants = {**constants, "w": filled}
    fits = epilogue.element == "i8" and sums_fit(constants)
    return SpaceToDepthSketch(whole, 1, epilogue, rescale_form(constants), constants, fits)
