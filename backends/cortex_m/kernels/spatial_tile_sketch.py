"""DEPTHWISE_CONV2D of bytes with the numbers that its schedules on cores with vectors leave open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form, sums_fit
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, RowResult
from tosaic.backends.cortex_m.program.sketches.spatial_tile_numbers import DEEP, PAIR, SpatialTiles
from tosaic.backends.cortex_m.program.sketches.spatial_tile_strips import StripCopy
from tosaic.backends.cortex_m.program.sketches.spatial_tiles import spatially_tiled
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TILES = {
    "2x2": (2, 2, False, False),
    "4x1": (4, 1, True, False),
    "2x1": (2, 1, True, False),
    "2xn": (2, 1, True, True),
    "1x1": (1, 1, False, False),
}
"""Rows and columns of results that share a spatial tile, whether it is a deep one, and whether others of a row share
it."""
_LARGEST = 11
"""Rows and columns of a window."""
_MOST_TILES = 14
"""That an iteration computes."""
_BLOCKS = (16, 32, 48, 64, 96, 128, 192)
_TILE, _PAIRED, _LOOKED_UP, _ITERATION, _ENTRY = 9, 7, 2, 3, 60
"""Instructions of the epilogue of four results, or of half a pair of fours, of a table, and of a channel; cycles of
the loop over channels."""
_SCALED = {"rounded": 0, "doubled": 1, "shifted": 2}
"""Instructions more for other forms of a RESCALE."""
_ALONE, _TOGETHER, _SHARED = 2, 1.5, 3
"""Instructions of a spatial tile with its pointer, and of one that begins where others do; of weights that share
one."""
_REACH = 4095
"""Bytes that an instruction moves a pointer by."""
_HIDDEN, _CHAIN = 0.7, 0.8
"""The share of what is issued beside which products do not wait; cycles that four results of a pair or a deep spatial
tile wait."""
_COPY, _PIXEL = 16, 16
"""Cycles of four vectors that are interleaved, and of the loop over vectors of a pixel."""


@dataclass(frozen=True)
class SpatialTileSketch:
    """DEPTHWISE_CONV2D; see `sketches.spatial_tiles`."""

    geometry: Geometry
    multiples: int
    epilogue: Epilogue
    form: str
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    fits: bool = False
    """Whether scaled sums fit 16 bits."""

    def program(self) -> Program:
        return algorithms.depthwise(self.geometry, self.multiples, self.epilogue, by_element=True)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, the results that share a spatial tile; `part`, those of a row that an
        iteration over channels computes; `packed` vectors in an iteration of the copy; `paired`, whether fours of
        results become bytes two by two; `block`, channels whose strips are made together."""
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

    def numbers(self, knobs: Knobs) -> SpatialTiles:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        g, epilogue = self.geometry, self.epilogue
        rows, columns, deep, slides = _TILES[str(knobs["tile"])]
        large = max(g.span) > DEEP
        result = RowResult(self.form, epilogue.element, epilogue.clamped, epilogue.table, fits=self.fits)
        part, packed, block, paired = (int(knobs[name]) for name in ("part", "packed", "block", "paired"))
        deep = deep and not large
        t = SpatialTiles(g, self.multiples, result, rows, columns, deep, part, packed, block, paired > 0, slides)
        if t.extent[0] > FOUR * t.groups or (t.large and not (large and (rows, columns) == (PAIR, 1))):
            raise RefusedError(f"{t.extent} rows and columns are no spatial tile")
        moves = t.large or not t.shared or g.stride == (1, 1)
        if not (t.extent[0] > FOUR and g.stride[0] <= PAIR if t.deep else moves):
            raise RefusedError(f"spatial tiles of {t.extent} do not move by {g.stride}")
        if t.extent[0] % FOUR == 1 or (t.across == 1 and not t.shared):
            raise RefusedError(f"strips of {t.extent[0]} rows, or one result at a time, are not made")
        check_fours(t)
        if t.slides and not (
            t.paired
            and t.deep
            and t.pairs > 1
            and g.stride[1] <= PAIR
            and t.part % t.passes == 0
            and t.part // t.passes >= t.iteration
        ):
            raise RefusedError("no windows of a part share spatial tiles")
        if t.multiples > 1 and not t.whole:
            raise RefusedError("several results of a channel have no blocks of channels")
        if StripCopy(t, 0).elements < LANES * t.packed:
            raise RefusedError("what lies together is no vector")
        return t

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return spatially_tiled(self.numbers(knobs))

    def least_bytes(self, knobs: Knobs) -> int:
        """Those of working memory that strips take."""
        t = self.numbers(knobs)
        return t.groups * FOUR * t.width * t.block

    def cost(self, knobs: Knobs) -> float:
        t, g = self.numbers(knobs), self.geometry
        strips, blocks = -(-g.rows // t.rows), g.channels // t.block
        parts = (t.multiples if t.several else 1) * g.columns // t.part
        return g.batch * blocks * strips * (parts * (_iteration(t) * t.iterations + _ENTRY) + self.copied(t))

    def copied(self, t: SpatialTiles) -> float:
        """About the cycles of the copy of a strip."""
        vectors = t.inside * t.block / LANES
        if t.apart:
            vectors = t.inside * StripCopy(t, 0).iterations * t.packed
        return t.groups * copy_cycles(vectors, t.packed, StripCopy(t, 0).entered)


def check_fours(t: SpatialTiles) -> None:
    """Refuse what computes no fours of results, or no two of them together where it should.

    Raises:
        RefusedError: it does not.
    """
    if t.part < t.across or t.geometry.rows < t.rows or t.tiles > _MOST_TILES:
        raise RefusedError(f"{t.part} results in {t.geometry.rows} rows are no tiles of {t.rows} by {t.across}")
    bytes_ = t.result.element == "i8" and not t.result.clamped and not t.result.table
    if t.paired and not (bytes_ and t.part >= t.iteration and t.rows * t.across == FOUR and not t.large):
        raise RefusedError("no two fours of results become bytes together")


def copy_cycles(vectors: float, packed: int, entered: int) -> float:
    """About the cycles of copies of so many vectors of four words, `packed` in an iteration of a loop, which is entered
    so many times."""
    return vectors * (_COPY + 2 / packed) + _PIXEL * entered


def _iteration(t: SpatialTiles) -> float:
    """About the cycles of an iteration over channels: what is issued, and what waits for the pipe of products."""
    several = t.pairs if t.deep else -(-t.extent[1] // FOUR) * (t.groups if t.large else 1)
    windows = t.part if t.cells else t.tiles
    products, spatial_tiles = t.rows * t.part * several, windows * several
    back = windows * (DEEP * PAIR * t.block * (several - 1) > _REACH) if t.deep else 0
    if t.slides:
        spatial_tiles, back = t.passes * (t.part // t.passes + several - 1), t.passes
    moved = spatial_tiles * (t.rows - 1) if t.deep or t.moves else 0
    epilogue = (_PAIRED - (t.result.fits + t.factor_lanes) / 2 if t.paired else _TILE) + _SCALED[t.result.form]
    epilogue += _LOOKED_UP * t.result.table + t.sparing * (1 + len(t.result.scale))
    weights = several * (_SHARED if t.shared and not (t.deep or t.large) else 1)
    gathered = spatial_tiles * (_ALONE if t.shared and not t.moves else _TOGETHER)
    issued = products + gathered + back + moved + epilogue * t.tiles + weights + _ITERATION
    waits = max(0, 2 * (products + t.tiles) - _HIDDEN * issued)
    return issued + waits + t.tiles * _CHAIN * (t.paired or t.deep)


def spatial_tile_sketch(
    geometry: Geometry, multiples: int, epilogue: Epilogue, constants: Mapping[str, np.ndarray]
) -> SpatialTileSketch | None:
    """The sketch of a layer; None where its windows do not fit spatial tiles. Those whose elements lie apart have
    weights of zero between them."""
    if max(geometry.span) > _LARGEST:
        return None
    if geometry.dilation != (1, 1):
        (down, right), weights = geometry.dilation, constants["w"].reshape(-1, *geometry.kernel)
        filled = np.zeros((len(weights), *geometry.span), weights.dtype)
        filled[:, ::down, ::right] = weights
        geometry = replace(geometry, kernel=geometry.span, dilation=(1, 1))
        constants = {**constants, "w": filled}
    fits = epilogue.element == "i8" and sums_fit(constants)
    found = SpatialTileSketch(geometry, multiples, epilogue, rescale_form(constants), constants, fits)
    for tile, part in itertools.product(_TILES, found.parts):
        with suppress(RefusedError):
            found.numbers({"tile": tile, "part": part, "packed": 1, "paired": 0, "block": geometry.channels})
            return found
    return None
