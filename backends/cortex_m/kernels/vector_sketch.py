"""The sketches of CONV2D of several pixels for cores with vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.kernels.column_sketch import ColumnSketch, is_column
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form, sums_fit
from tosaic.backends.cortex_m.kernels.strip_sketch import GatheredSketch, StripSketch, run_of
from tosaic.backends.cortex_m.kernels.weight_stationary_sketch import WeightStationarySketch
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, WORDS, FactorTypes
from tosaic.backends.cortex_m.program.strips import has_gaps
from tosaic.backends.cortex_m.program.tree import BYTES

IN_PLACE = "_in_place"
"""What the names of variants end in that read windows in the image, and take little working memory."""
_LONG = 24
"""Bytes of a row of a window of which vectors are full enough."""
_DEEP = 120
"""Vectors of a window of which an iteration takes all, for some pixels and channels."""
_SHALLOW = 64
"""Bytes of a window of which weights may stay in registers."""


def vector_sketches(
    geometry: Geometry,
    channels: int,
    epilogue: Epilogue,
    constants: Mapping[str, np.ndarray],
    element: str,
    types: FactorTypes = WORDS,
) -> dict[str, Sketched]:
    """The sketches by the variant's name.

    Windows whose rows fill few vectors are copied side by side, and those that are added up in parts.

    Args:
        element: the type of the input.
        types: how what a channel has of its own lies in memory.
    """
    form, geometry = rescale_form(constants), _lying(geometry)
    fits = form == "rounded" and epilogue.element == "i8" and not epilogue.clamped
    fits = fits and not (epilogue.table and channels % LANES) and sums_fit(constants)
    if is_column(geometry, channels):
        return {"columns": ColumnSketch(geometry, channels, epilogue, form, constants, element=element)}
    if geometry.kernel != (1, 1) or any(geometry.pad):
        size = BYTES[element]
        gathered = run_of(geometry) * size < _LONG - 8 * has_gaps(geometry)
        gathered |= epilogue.parts > 1 or geometry.depth * size > _DEEP * LANES
        gaps = (*geometry.kernel, geometry.channels)
        window = (-1,) if gathered else gaps if has_gaps(geometry) else (geometry.kernel[0], -1)
        parts = (epilogue.parts,) if epilogue.parts else ()
        windows = {**constants, "w": constants["w"].reshape(*parts, channels, *window)}
        name, made = ("gathered", GatheredSketch) if gathered else ("strips", StripSketch)
        strips = made(geometry, channels, epilogue, form, windows, element=element, types=types, fits=fits)
        return {name: strips, f"{name}{IN_PLACE}": replace(strips, in_place=True)}
    what = geometry, channels, epilogue, form, constants
    found: dict[str, Sketched] = {"pixels": PixelSketch(*what, element=element, types=types, fits=fits)}
    # A mask, bounds, and a table or more vectors, take more general registers than there are.
    too_many = geometry.depth % LANES and epilogue.clamped and (epilogue.table or geometry.depth > LANES)
    if not too_many and epilogue.element == "i8" and channels % FOUR == 0 and geometry.depth <= _SHALLOW:
        found["weight_stationary"] = WeightStationarySketch(*what, fits=fits and not epilogue.table)
    return found


def _lying(g: Geometry) -> Geometry:
    """The geometry of an image of one column as that of one row, which lies alike."""
    if g.width > 1 or g.kernel[1] > 1 or any(g.pad[2:]) or g.columns > 1:
        return g
    turned = {name: getattr(g, name)[::-1] for name in ("kernel", "stride", "dilation")}
    pad = (*g.pad[2:], *g.pad[:2])
    return replace(g, **turned, height=1, width=g.height, pad=pad, rows=1, columns=g.rows)
