"""CONV2D with the numbers that schedules with a tile of sums in general registers leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.isa.isa import extends, integer_sets_of
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import scales
from tosaic.backends.cortex_m.kernels.tile_knobs import TILES, scale_forms, steps_of, tile_of_sums
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches import carried_products, products
from tosaic.backends.cortex_m.program.sketches.products import Tile
from tosaic.backends.cortex_m.program.sketches.tiles import tile_sizes
from tosaic.backends.cortex_m.program.thumb import HIGH
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice


@dataclass(frozen=True)
class Conv2dSketch:
    """CONV2D.

    Args:
        element: the type of the input.
    """

    geometry: Geometry
    channels: int
    epilogue: Epilogue
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    element: str = "i8"

    def program(self) -> Program:
        return algorithms.conv2d(self.geometry, self.channels, self.epilogue, self.element)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, pixels x channels of the sums in registers; `unroll`, steps of the depth
        in a block; `isa`; `scale`, the form of the RESCALE; `windows`, whether they are copied, or read in place;
        `weights`, whether they lie as bytes, or as pairs of which each is one half."""
        pointwise = self.geometry.kernel == (1, 1) and not any(self.geometry.pad)
        return {
            "isa": tuple(integer_sets_of(core)),
            "tile": TILES,
            "unroll": steps_of(core),
            "scale": scale_forms(self.epilogue, self.constants),
            "windows": ("copied", "in place") if pointwise else ("copied",),
            "weights": ("pairs", "bytes") if self.element == "i8" and is_small(self.constants) else ("bytes",),
        }

    def tile(self, knobs: Knobs) -> Tile:
        pixels, channels = tile_sizes(str(knobs["tile"]))
        g = self.geometry
        if pixels > g.columns or self.channels % channels:
            raise RefusedError(f"{g.columns} pixels and {self.channels} channels have no tile of {knobs['tile']}")
        return tile_of_sums(pixels, channels, g.columns, g.depth, knobs)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        tile, high, g = self.tile(knobs), knobs["scale"] == "high", self.geometry
        if tile.halves:
            copied = knobs["windows"] == "copied"
            if knobs["weights"] == "pairs":
                if tile.depth % (4 * tile.unroll) or not high or not (copied or g.stride == (1, 1)):
                    raise RefusedError("pairs are no whole blocks")
                made = carried_products.carried_dense if tile.pixels == 1 else carried_products.carried_conv2d
                return made(tile, copied)
            if tile.unroll > -(-tile.depth // 4):
                raise RefusedError(f"a depth of {tile.depth} has no {tile.unroll} steps of four")
            if self.element == "i16":
                if not copied and (tile.depth % (4 * tile.unroll) or g.stride != (1, 1)):
                    raise RefusedError("pixels where they lie are no whole blocks")
                return products.half_conv2d(tile, high, copied)
            if not copied:
                raise RefusedError("halves are made of copies")
            return products.dsp_conv2d(tile, high, g.channels % 4 == 0, any(g.pad))
        if tile.depth % tile.unroll or knobs["weights"] == "pairs":
            raise RefusedError(f"{tile.unroll} does not divide {tile.depth}, or weights are no bytes")
        if extends(tile.isa, "thumb"):
            if knobs["windows"] != "copied" or tile.pixels * tile.channels > HIGH:
                raise RefusedError("windows are copied, and sums lie in few registers")
            return products.thumb_conv2d(tile, high, g.channels)
        return products.scalar_conv2d(tile, high, knobs["windows"] == "copied")

    def cost(self, knobs: Knobs) -> float:
        pairs = 0.8 if knobs["weights"] == "pairs" else 1.0
        tile = self.tile(knobs)
        block = 4 * tile.unroll if tile.halves else 1
        added = -(-tile.depth // block) * block / tile.depth  # zeros that fill a last block of halves
        return tile.cost * added * pairs + (knobs["scale"] == "wide") + (knobs["windows"] == "copied") / 100


def is_small(constants: Mapping[str, np.ndarray]) -> bool:
    """Whether sums are so small that weights may lie in pairs."""
    if "w" not in constants:
        return False
    weights, bias = (constants[name].astype(np.int64) for name in ("w", "bias"))
    rows = weights.reshape(len(weights), -1)
    if len(scales(constants)) == 1 or rows.shape[1] % 2 or DERIVED["carried"](rows) is None:
        return False
    shift, zero = (constants[name].astype(np.int64) for name in ("shift", "zero"))
    rounded = (shift <= 54).all() and DERIVED["round"](shift + 8, zero) is not None
    return DERIVED["carried_bias"](bias, rows) is not None and bool(rounded)
