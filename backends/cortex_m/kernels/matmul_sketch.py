"""MATMUL with the numbers that its schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tosaic.backends.cortex_m.isa.isa import extends, integer_sets_of
from tosaic.backends.cortex_m.kernels.tile_knobs import TILES, scale_forms, steps_of, tile_of_sums
from tosaic.backends.cortex_m.program import matmul_algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.assembly import GENERAL
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches import matmuls
from tosaic.backends.cortex_m.program.sketches.products import Tile
from tosaic.backends.cortex_m.program.sketches.tiles import tile_sizes
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_PARTS = 2
"""Sums of a product of halves."""


_KEPT = 4
"""High registers that calls keep, of which RESCALE takes some; clang 22 fails where more hold sums."""


_BESIDE = 5
"""Registers of operands and pointers beside sums of 64 bits."""


_TOGETHER, _WRITTEN_OUT = (2, 1, 3), 64
"""Rows that are multiplied with a column together, and loads of a column that are written out."""


_RESULT, _COLUMN, _APART, _COPIED = 6, 20, 9, 6
"""Cycles of a result of 64 bits, of a block for a column, of a vector whose lanes lie apart, and of an element that is
copied."""


@dataclass(frozen=True)
class MatmulSketch:
    """MATMUL of two int8 tensors to int8, of which the second may be transposed."""

    batch: int
    rows: int
    depth: int
    columns: int
    epilogue: Epilogue
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    transposed: bool = False

    def program(self) -> Program:
        return matmul_algorithms.matmul(self.batch, self.rows, self.depth, self.columns, self.epilogue, self.transposed)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `Conv2dSketch`."""
        isa, scale = tuple(integer_sets_of(core)), scale_forms(self.epilogue, self.constants)
        return {"isa": isa, "tile": TILES, "unroll": steps_of(core), "scale": scale}

    def tile(self, knobs: Knobs) -> Tile:
        rows, columns = _tile_of(self.rows, self.columns, knobs)
        return tile_of_sums(rows, columns, self.rows, self.depth, knobs)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return _products(self.tile(knobs), knobs["scale"] == "high", 1)

    def cost(self, knobs: Knobs) -> float:
        return self.tile(knobs).cost + (knobs["scale"] == "wide")


@dataclass(frozen=True)
class HalfMatmulSketch:
    """MATMUL of two int16 tensors to int16, of which the second may be transposed."""

    batch: int
    rows: int
    depth: int
    columns: int
    transposed: bool
    multiplier: int
    shift: int

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        return {}

    def program(self) -> Program:
        sizes = (self.batch, self.rows, self.depth, self.columns)
        return matmul_algorithms.matmul_i16(*sizes, self.multiplier, self.shift, self.transposed)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `MatmulSketch`."""
        return {"isa": tuple(integer_sets_of(core)), "tile": TILES, "unroll": steps_of(core)}

    def tile(self, knobs: Knobs) -> Tile:
        """The tile of sums."""
        rows, columns = _tile_of(self.rows, self.columns, knobs)
        made = tile_of_sums(rows, _PARTS * columns, self.rows, self.depth, knobs)
        if extends(made.isa, "thumb") and rows * made.channels > _KEPT:
            raise RefusedError(f"calls keep {_KEPT} sums")
        return made

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return _products(self.tile(knobs), False, _PARTS)

    def cost(self, knobs: Knobs) -> float:
        return self.tile(knobs).cost


@dataclass(frozen=True)
class _LongMatmul:
    """MATMUL of two int16 tensors to int16 of any depth, of which the second may be transposed; see
    `matmul_algorithms.matmul_long`."""

    batch: int
    rows: int
    depth: int
    columns: int
    transposed: bool
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    def program(self) -> Program:
        return matmul_algorithms.matmul_long(self.batch, self.rows, self.depth, self.columns, self.transposed)


class LongMatmulSketch(_LongMatmul):
    """With sums in pairs of general registers."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `MatmulSketch`."""
        isa = tuple(name for name in integer_sets_of(core) if extends(name, "scalar"))
        return {"isa": isa, "tile": TILES, "unroll": steps_of(core)}

    def tile(self, knobs: Knobs) -> Tile:
        """The tile of sums."""
        rows, columns = _tile_of(self.rows, self.columns, knobs)
        tile = replace(tile_of_sums(rows, columns, self.rows, self.depth, knobs), sums="p")
        if tile.registers + _BESIDE > GENERAL:
            raise RefusedError(f"sums of {knobs['tile']} take {tile.registers} registers")
        return tile

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return _products(self.tile(knobs), False, 1)

    def cost(self, knobs: Knobs) -> float:
        return self.tile(knobs).cost


class LongRowsSketch(_LongMatmul):
    """With products of vectors."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `together`, rows that are multiplied with a column; `unroll`, vectors in an
        iteration, or 0 where that is a column; `ahead`, loads that run an iteration ahead; `columns`, whether they are
        read in place, or copied first."""
        return {
            "together": tuple(n for n in _TOGETHER if n <= self.rows),
            "unroll": (0, 2, 1, 4),
            "ahead": (1, 0, 2),
            "columns": ("in place",) if self.transposed else ("in place", "copied"),
        }

    def numbers(self, knobs: Knobs) -> matmuls.LongRows:
        """The numbers of a schedule.

        Raises:
            RefusedError: no iteration follows another one, or it is too long.
        """
        together, unroll, ahead = (int(knobs[name]) for name in ("together", "unroll", "ahead"))
        s = matmuls.LongRows(self.rows, self.depth, together, unroll, ahead, knobs["columns"] == "copied")
        if self.depth // matmuls.LONG_LANES < 2 * unroll or (not unroll and self.columns == 1):
            raise RefusedError("no iteration follows another one")
        if not unroll and s.vectors * (together + 1) > _WRITTEN_OUT:
            raise RefusedError(f"{s.vectors} vectors of a column are too many to be written out")
        return s

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return matmuls.long_matmul(self.numbers(knobs))

    def cost(self, knobs: Knobs) -> float:
        s = self.numbers(knobs)
        column = 2 if self.transposed or s.copied else _APART
        loads = s.vectors * (column + (0 if s.held else 2 * s.together))
        each = loads + 2 * s.vectors * s.together + _RESULT * s.together + (_COLUMN if s.unroll else 0)
        copies = _COPIED * self.depth * s.copied
        return self.columns * (-(-self.rows // s.together) * each + copies) + 0.01 * abs(s.ahead - 1)


def _products(tile: Tile, high: bool, parts: int) -> Iterator[str]:
    """The steps of MATMUL; see `sketches.matmuls`.

    Raises:
        RefusedError: the depth is no whole number of blocks.
    """
    steps = tile.depth // 2 if tile.halves else tile.depth
    if (tile.halves and tile.depth % 2) or steps % tile.unroll:
        raise RefusedError(f"{tile.unroll} steps do not divide a depth of {tile.depth}")
    if extends(tile.isa, "thumb"):
        return matmuls.thumb_matmul(tile, high, parts)
    made = matmuls.dsp_matmul if tile.halves else matmuls.scalar_matmul
    return made(tile, high, parts)


def _tile_of(rows: int, columns: int, knobs: Knobs) -> tuple[int, int]:
    """Rows and columns of a tile.

    Raises:
        RefusedError: a matrix of so many has none.
    """
    tile = tile_sizes(str(knobs["tile"]))
    if tile[0] > rows or columns % tile[1]:
        raise RefusedError(f"{rows} rows and {columns} columns have no tile of {knobs['tile']}")
    return tile
