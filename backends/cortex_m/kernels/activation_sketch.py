"""MATMUL of two activations, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.kernels.resident_sketch import ResidentSketch
from tosaic.backends.cortex_m.kernels.vector_conv2d import VectorConv2d
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, PixelRows, RowResult
from tosaic.backends.cortex_m.program.sketches.row_parts import row_parts
from tosaic.backends.cortex_m.program.sketches.vectors import Resident
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_MOST_BLOCK = 64
"""Columns of a block, beyond which little is gained for much working memory."""
_SUMS, _POINTERS, _GENERAL = 5, 5, 13
"""General registers for four sums and the term of a row, those of pointers, and how many there are."""
_APART, _COPIED = 8, 5
"""Cycles of eight elements that lie apart, and of a vector, which are copied."""


@dataclass(frozen=True)
class ActivationProduct(VectorConv2d):
    """MATMUL of int8: its rows are pixels, its columns channels.

    Args:
        geometry: of windows of one pixel in images of one row.
        uniform: whether all columns have one scale.
        transposed: whether the second operand lies by columns.
        b_first: whether it is the first argument.
    """

    uniform: bool
    transposed: bool
    b_first: bool

    @property
    def result(self) -> RowResult:
        return replace(super().result, uniform=self.uniform, terms=True)

    def program(self) -> Program:
        g = self.geometry
        sizes = (g.batch, g.columns, g.channels, self.channels)
        return algorithms.matmul_by_terms(*sizes, self.epilogue, self.uniform, self.transposed, self.b_first)

    @property
    def row_terms(self) -> int:
        """Bytes of what is known of each row."""
        return 2 * round_up(FOUR * self.geometry.batch * self.geometry.columns + SLACK, LANES)


@dataclass(frozen=True)
class ActivationSketch(ActivationProduct, PixelSketch):
    """Those whose second operand is copied; see `sketches.activations`."""

    most_sums: ClassVar[int] = 800
    """More gain little for much working memory."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        found = super().knobs(core)
        blocks = tuple(n for n in found["block"] if int(n) <= _MOST_BLOCK) or found["block"][-1:]
        return found | {"block": blocks, "weights": ("params",)}

    def numbers(self, knobs: Knobs) -> PixelRows:
        return replace(super().numbers(knobs), constant=False, transposed=self.transposed)

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        found = super().promise(knobs)
        block = max(part.block for part in row_parts(self.rows(knobs)))
        buffers = (block * round_up(self.depth, LANES), FOUR * block)
        scratch = found["scratch"] + sum(round_up(size + SLACK, LANES) for size in buffers) + self.row_terms
        return {**found, "scratch": scratch}

    def _cycles(self, s: PixelRows) -> float:
        vectors = s.vectors + (s.short > 0)
        copied = _COPIED * vectors if self.transposed else _APART * -(-s.depth // 8)
        columns = self.channels * (copied + 2 * vectors + 2)
        return super()._cycles(s) + self.geometry.batch * (columns + s.row * (2 * vectors + 8))


@dataclass(frozen=True)
class ActivationResidentSketch(ActivationProduct, ResidentSketch):
    """Those of which four columns stay in vectors while a hardware loop goes over the rows; see `sketches.vectors`."""

    def resident(self, knobs: Knobs) -> Resident:
        found = super().resident(knobs)
        if found.short and (found.held < FOUR or found.whole):
            raise RefusedError("behind the last column there is nothing to read")
        result = found.result
        numbers = 1 + len(result.scale) * result.uniform + len(found.bounds)
        pointers = _POINTERS + result.table + len(result.constants)
        if _SUMS + numbers + pointers > _GENERAL - (found.short > 0):
            raise RefusedError(f"{numbers} numbers and {pointers} pointers leave no general registers")
        return found

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        scratch = round_up(FOUR * self.channels + SLACK, LANES) + self.row_terms
        return {**super().promise(knobs), "scratch": scratch}
