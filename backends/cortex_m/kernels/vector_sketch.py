"""The sketches of CONV2D of several pixels for cores with vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.kernels.column_sketch import ColumnSketch, is_column
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.kernels.resident_sketch import ResidentSketch
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form
from tosaic.backends.cortex_m.kernels.strip_sketch import StripSketch
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES

_LONG = 24
"""Bytes of a row of a window of which vectors are full enough."""
_SHALLOW = 64
"""Bytes of a window of which weights may stay in registers."""


def vector_sketches(
    geometry: Geometry, channels: int, epilogue: Epilogue, constants: Mapping[str, np.ndarray]
) -> dict[str, Sketched]:
    """The sketches by the variant's name.

    There are none where windows have gaps, or rows that fill few vectors.
    """
    form = rescale_form(epilogue, constants)
    if is_column(geometry, channels):
        return {"columns": ColumnSketch(geometry, channels, epilogue, form, constants)}
    if geometry.kernel != (1, 1) or any(geometry.pad):
        if geometry.dilation[1] > 1 or geometry.kernel[1] * geometry.channels < _LONG:
            return {}
        rows = {**constants, "w": constants["w"].reshape(channels, geometry.kernel[0], -1)}
        return {"strips": StripSketch(geometry, channels, epilogue, form, rows)}
    what = geometry, channels, epilogue, form, constants
    found: dict[str, Sketched] = {"pixels": PixelSketch(*what)}
    # A mask, bounds, and a table or more vectors, take more general registers than there are.
    crowded = geometry.depth % LANES and epilogue.clamped and (epilogue.table or geometry.depth > LANES)
    if not crowded and epilogue.element == "i8" and channels % FOUR == 0 and geometry.depth <= _SHALLOW:
        found["resident_vectors"] = ResidentSketch(*what)
    return found
