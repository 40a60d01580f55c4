"""MATMUL of two activations, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, PixelRows, RowResult
from tosaic.backends.cortex_m.program.sketches.row_parts import row_parts
from tosaic.backends.cortex_m.program.tree import Program
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_APART, _COPIED = 8, 5
"""Cycles of eight elements that lie apart, and of a vector, which are copied."""


@dataclass(frozen=True)
class ActivationSketch(PixelSketch):
    """MATMUL of int8: its rows are pixels, its columns channels; see `sketches.activations`.

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

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        return super().knobs(core) | {"weights": ("params",)}

    def numbers(self, knobs: Knobs) -> PixelRows:
        return replace(super().numbers(knobs), constant=False, transposed=self.transposed)

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        g, found = self.geometry, super().promise(knobs)
        block = max(part.block for part in row_parts(self.rows(knobs)))
        buffers = (block * round_up(self.depth, LANES), FOUR * block, *[FOUR * g.batch * g.columns] * 2)
        return {**found, "scratch": found["scratch"] + sum(round_up(size + SLACK, LANES) for size in buffers)}

    def _cycles(self, s: PixelRows) -> float:
        vectors = s.vectors + (s.short > 0)
        copied = _COPIED * vectors if self.transposed else _APART * -(-s.depth // 8)
        columns = self.channels * (copied + 2 * vectors + 2)
        return super()._cycles(s) + self.geometry.batch * (columns + s.row * (2 * vectors + 8))
