"""DEPTHWISE_CONV2D of bytes with the numbers that its schedules on cores with vectors leave open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.patch_strips import DEEP, PAIR, Patched, StripCopy
from tosaic.backends.cortex_m.program.sketches.patches import patched
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, RowResult
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TILES = {"2x2": (2, 2, False), "4x1": (4, 1, True), "2x1": (2, 1, True), "1x1": (1, 1, False)}
"""Rows and columns of results that share a patch, and whether it is a deep one."""
_LARGEST = 11
"""Rows and columns of a window."""
_MOST_TILES = 14
"""That an iteration computes."""
_BLOCKS = (16, 32, 48, 64, 96, 128, 192)
_PRODUCT, _MOVED, _TILE, _ITERATION, _ENTRY = 2, 1, 9, 8, 60
"""Cycles of a product or a patch, of one that moves on, of four results, of a channel, of the loop over these."""
_PAIRED = 5
"""Cycles more of an iteration in which fours become bytes two by two, beside one less of each."""
_COPY, _PIXEL = 16, 16
"""Cycles of four vectors that are interleaved, and of the loop over vectors of a pixel."""


@dataclass(frozen=True)
class PatchSketch:
    """DEPTHWISE_CONV2D; see `sketches.patches`."""

    geometry: Geometry
    multiples: int
    epilogue: Epilogue
    form: str
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    def program(self) -> Program:
        return algorithms.depthwise(self.geometry, self.multiples, self.epilogue, by_element=True)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, the results that share a patch; `part`, those of a row that an iteration
        over channels computes; `packed` vectors in an iteration of the copy; `paired`, whether fours of results become
        bytes two by two; `block`, channels whose strips are made together."""
        g = self.geometry
        return {
            "tile": tuple(_TILES),
            "part": self.parts,
            "packed": (2, 1),
            "paired": (0, 1),
            "block": (g.channels, *(n for n in _BLOCKS if n < g.channels and g.channels % n == 0)),
        }

    @property
    def parts(self) -> tuple[int, ...]:
        """Of a row, those that divide it, and the largest of about one size that two by two tiles make."""
        columns = self.geometry.columns
        even = -(-columns // -(-columns // (2 * _MOST_TILES)))
        return tuple(n for n in range(columns, 0, -1) if columns % n == 0 or n == even)

    def numbers(self, knobs: Knobs) -> Patched:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        g, epilogue = self.geometry, self.epilogue
        rows, columns, deep = _TILES[str(knobs["tile"])]
        large = max(g.span) > DEEP
        result = RowResult(self.form, epilogue.element, epilogue.clamped, epilogue.table)
        part, packed, block, paired = (int(knobs[name]) for name in ("part", "packed", "block", "paired"))
        deep = deep and not large
        t = Patched(g, self.multiples, result, rows, columns, deep, part, packed, block, paired > 0)
        if t.extent[0] > FOUR * t.groups or (t.large and not (large and (rows, columns) == (PAIR, 1))):
            raise RefusedError(f"{t.extent} rows and columns are no patch")
        moves = t.large or not t.shared or g.stride == (1, 1)
        if not (t.extent[0] > FOUR and g.stride[0] <= PAIR if t.deep else moves):
            raise RefusedError(f"patches of {t.extent} do not move by {g.stride}")
        if t.extent[0] % FOUR == 1 or (t.across == 1 and not t.shared):
            raise RefusedError(f"strips of {t.extent[0]} rows, or one result at a time, are not made")
        if t.part < t.across or g.rows < t.rows or t.tiles > _MOST_TILES:
            raise RefusedError(f"{t.part} results in {g.rows} rows are no tiles of {t.rows} by {t.across}")
        bytes_ = result.element == "i8" and not result.clamped and not result.table
        if t.paired and not (bytes_ and t.part >= t.iteration and t.rows * t.across == FOUR and not t.large):
            raise RefusedError("no two fours of results become bytes together")
        if t.multiples > 1 and not t.whole:
            raise RefusedError("several results of a channel have no blocks of channels")
        if StripCopy(t, 0).elements < LANES * t.packed:
            raise RefusedError("what lies together is no vector")
        return t

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return patched(self.numbers(knobs))

    def least_bytes(self, knobs: Knobs) -> int:
        """Those of working memory that strips take."""
        t = self.numbers(knobs)
        return t.groups * FOUR * t.width * t.block

    def cost(self, knobs: Knobs) -> float:
        t, g = self.numbers(knobs), self.geometry
        several = -(-t.extent[1] // (PAIR if t.deep else FOUR)) * (t.groups if t.large else 1)
        patches, products = several * (t.across if t.cells else 1), FOUR * several
        moved = products - patches if t.deep else 0
        iteration = t.tiles * (_PRODUCT * (products + patches) + _MOVED * moved + _TILE) + _ITERATION
        iteration += t.paired * (_PAIRED - t.tiles)
        vectors = t.inside * t.block / LANES
        copies = t.groups * (vectors * (_COPY + 2 / t.packed) + _PIXEL * StripCopy(t, 0).entered)
        strips, blocks = -(-g.rows // t.rows), g.channels // t.block
        parts = (t.multiples if t.several else 1) * g.columns // t.part
        return g.batch * blocks * strips * (parts * (iteration * t.iterations + _ENTRY) + copies)


def patch_sketch(
    geometry: Geometry, multiples: int, epilogue: Epilogue, constants: Mapping[str, np.ndarray]
) -> PatchSketch | None:
    """The sketch of a layer; None where its windows do not fit patches. Those whose elements lie apart have weights of
    zero between them."""
    if max(geometry.span) > _LARGEST:
        return None
    if geometry.dilation != (1, 1):
        (down, right), weights = geometry.dilation, constants["w"].reshape(-1, *geometry.kernel)
        filled = np.zeros((len(weights), *geometry.span), weights.dtype)
        filled[:, ::down, ::right] = weights
        geometry = replace(geometry, kernel=geometry.span, dilation=(1, 1))
        constants = {**constants, "w": filled}
    found = PatchSketch(geometry, multiples, epilogue, rescale_form(constants), constants)
    for tile, part in itertools.product(_TILES, found.parts):
        with suppress(RefusedError):
            found.numbers({"tile": tile, "part": part, "packed": 1, "paired": 0, "block": geometry.channels})
            return found
    return None
