"""MATMUL of two activations, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.kernels.vector_conv2d import VectorConv2d
from tosaic.backends.cortex_m.kernels.weight_stationary_sketch import WeightStationarySketch
from tosaic.backends.cortex_m.program import matmul_algorithms
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, PixelRows, RowResult
from tosaic.backends.cortex_m.program.sketches.row_parts import SumGroup, row_parts
from tosaic.backends.cortex_m.program.sketches.weight_stationary import WeightStationary
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_SUMS, _POINTERS, _GENERAL = 5, 5, 13
"""General registers for four sums and the term of a row, those of pointers, and how many there are."""
_MOST_STAYING, _MOST_INSTRUCTIONS, _MOST_OF_COLUMN = 4, 260, 128
"""Vectors of rows that stay, so that others find registers; of an iteration, and of a column in it: with more, a loop
over its vectors takes little more time."""
_APART, _COPIED, _ENTRY = 8, 5, 30
"""Cycles of eight elements that lie apart, and of a vector, which are copied; and of a block of sums."""


@dataclass(frozen=True)
class ActivationProduct(VectorConv2d):
    """MATMUL of int8: its rows are pixels, its columns channels.

    Args:
        geometry: of windows of one pixel in images of one row.
        uniform: whether all columns have one scale.
        centered: whether the zero point of rows is 0, so that it adds nothing to columns.
        transposed: whether the second operand lies by columns.
        b_first: whether it is the first argument.
    """

    uniform: bool
    centered: bool
    transposed: bool
    b_first: bool

    @property
    def result(self) -> RowResult:
        return replace(super().result, uniform=self.uniform, terms=True, column_terms=not self.centered)

    def program(self) -> Program:
        g = self.geometry
        sizes = (g.batch, g.columns, g.channels, self.channels)
        return matmul_algorithms.matmul_by_terms(
            *sizes,
            self.epilogue,
            uniform=self.uniform,
            centered=self.centered,
            transposed=self.transposed,
            b_first=self.b_first,
        )

    @property
    def row_terms(self) -> int:
        """Bytes of what is known of each row."""
        return 2 * round_up(FOUR * self.geometry.batch * self.geometry.columns + SLACK, LANES)


@dataclass(frozen=True)
class ActivationSketch(ActivationProduct, PixelSketch):
    """Those whose second operand is copied; see `sketches.activations`."""

    most_sums: ClassVar[int] = 800
    """More gain little for much working memory."""
    most_block: ClassVar[int] = 64
    """Columns of a block, beyond which little is gained for much working memory."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        found = super().knobs(core)
        blocks = tuple(n for n in found["block"] if int(n) <= self.most_block) or found["block"][-1:]
        return found | {"block": blocks, "weights": ("params",)}

    def numbers(self, knobs: Knobs) -> PixelRows:
        return replace(super().numbers(knobs), constant=False, transposed=self.transposed)

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        found = super().promise(knobs)
        block = max(part.block for part in row_parts(self.rows(knobs)))
        scratch = found["scratch"] + self.row_terms
        terms = [FOUR * block] * self.result.column_terms
        scratch += sum(round_up(size + SLACK, LANES) for size in (*self._copy(block), *terms))
        return {**found, "scratch": scratch}

    def _copy(self, block: int) -> Sequence[int]:
        """Bytes of the copy of a block of columns, if there is one."""
        return (block * round_up(self.depth, LANES),)

    def _cycles(self, s: PixelRows) -> float:
        vectors = s.vectors + (s.short > 0)
        return super()._cycles(s) + self.geometry.batch * (self._columns(s, vectors) + s.row * (2 * vectors + 8))

    def _columns(self, s: PixelRows, vectors: int) -> float:
        """Cycles of the copies of columns, and of what zero points add to them."""
        copied = _COPIED * vectors if self.transposed else _APART * -(-s.depth // 8)
        return self.channels * (copied + (2 * vectors + 2) * self.result.column_terms)


@dataclass(frozen=True)
class InPlaceSketch(ActivationSketch):
    """Those of few rows whose second operand lies by columns, and is read there: an iteration multiplies some columns
    by all rows, or some vectors of a column."""

    near: ClassVar[float] = 1.01
    most_block: ClassVar[int] = 128

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        rows, vectors, found = self.geometry.columns, self.depth // LANES, super().knobs(core)
        most = min(vectors, _MOST_STAYING // rows - (self.depth % LANES > 0))
        return found | {
            "tile": (f"{rows}x1",),
            "together": (rows,),
            "share": tuple(n for n in (2, 1) if n <= rows),
            "repeats": (1,),
            "unroll": (0,) if self.depth % LANES else found["unroll"],
            "held": tuple(range(most, -1, -1)),
            "ahead": (0, 2, 1),
        }

    def numbers(self, knobs: Knobs) -> PixelRows:
        found = replace(super().numbers(knobs), in_place=True)
        if found.unroll and found.ahead:
            raise RefusedError("behind the last column there is nothing to read")
        iteration, column = self._iteration(found), self._column(found)
        if iteration > _MOST_INSTRUCTIONS or column > _MOST_OF_COLUMN:
            raise RefusedError(f"an iteration of {iteration} instructions, {column} of a column, is too long")
        return found

    def _iteration(self, s: PixelRows) -> int:
        """About the instructions of an iteration."""
        return self._column(s) * (1 if s.unroll or not s.whole else LANES if s.pairs else FOUR)

    def _column(self, s: PixelRows) -> int:
        """About those of a column, or of the part of it that an iteration takes."""
        return (s.unroll or s.vectors + (s.short > 0)) * (1 + s.result.column_terms + 2 * s.pixels)

    def usual(self, first: Knobs, others: Knobs) -> dict[str, Choice]:
        """As above; what runs ahead of so long an iteration is worth little, and the last iteration has code of its own
        then."""
        return {**super().usual(first, others), "ahead": 0}

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        """The loop over columns."""
        g = self.geometry
        columns = ArrayAccess("columns", "input", g.depth, (g.depth,))
        results = ArrayAccess("out", "output", g.columns, (g.columns,), writes=True)
        return [Walk((float(g.batch * self.channels),), (columns, results))]

    def _copy(self, block: int) -> Sequence[int]:
        return ()

    def _columns(self, s: PixelRows, vectors: int) -> float:
        return 0.0

    def _instructions(self, s: PixelRows) -> int:
        return super()._instructions(s) + self._iteration(s)

    def _sums(self, g: SumGroup) -> float:
        s, short = g.part.s, int(g.part.s.short > 0)
        sums = s.row + s.result.column_terms
        products = (s.vectors + short) * sums
        if s.unroll:
            return g.channels * (2 * products + _ENTRY)
        stores = sums / (2 if s.pairs and g.part.whole else 1)
        issued = s.vectors + s.row * (s.vectors - s.held) + 2 * short + products + stores
        return g.channels * max(2 * products, issued) + _ENTRY


@dataclass(frozen=True)
class ActivationStationarySketch(ActivationProduct, WeightStationarySketch):
    """Those of which four columns stay in vectors while a hardware loop goes over the rows.

    See `sketches.weight_stationary`.
    """

    def stationary(self, knobs: Knobs) -> WeightStationary:
        found = super().stationary(knobs)
        if found.short and (found.held < FOUR or found.whole):
            raise RefusedError("behind the last column there is nothing to read")
        result = found.result
        numbers = 1 + len(result.scale) * result.uniform + len(found.bounds)
        pointers = _POINTERS + result.table + len(result.constants)
        if _SUMS + numbers + pointers > _GENERAL - (found.short > 0):
            raise RefusedError(f"{numbers} numbers and {pointers} pointers leave no general registers")
        return found

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        terms = round_up(FOUR * self.channels + SLACK, LANES) * self.result.column_terms
        return {**super().promise(knobs), "scratch": terms + self.row_terms}
