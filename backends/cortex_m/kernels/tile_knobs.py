"""The numbers that schedules with a tile of sums in general registers leave open."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.isa.isa import extends
from tosaic.backends.cortex_m.kernels.sketch_constants import scales
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.products import ThumbTile, Tile
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

TILES = (
    "4x2",
    "2x4",
    "3x2",
    "2x3",
    "2x2",
    "6x1",
    "5x1",
    "4x1",
    "3x1",
    "2x1",
    "1x8",
    "1x6",
    "1x4",
    "1x2",
    "1x1",
)
_UNROLLED = (8, 16, 24, 32, 4, 12, 6, 10, 7, 5, 9, 3, 2, 1)


def steps_of(core: Core) -> tuple[Choice, ...]:
    """Steps of the depth in a block: more where an iteration moves its sums to high registers and back."""
    return (*_UNROLLED, 64) if core.baseline else _UNROLLED


def scale_forms(epilogue: Epilogue, constants: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The forms that the RESCALE may have; one to int32, which nothing narrows, is wide."""
    return ("wide",) if epilogue.element == "i32" else scales(constants)


def tile_of_sums(pixels: int, channels: int, columns: int, depth: int, knobs: Knobs) -> Tile:
    """The tile of so many pixels and channels, of a matrix with so many columns of pixels."""
    isa = str(knobs["isa"])
    made = ThumbTile if extends(isa, "thumb") else Tile
    return made(pixels, channels, columns, depth, int(knobs["unroll"]), isa, extends(isa, "dsp"))
