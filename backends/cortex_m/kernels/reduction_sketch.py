"""Reductions of rows with the numbers that their schedules leave open."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.reductions import Rows, by_rows, by_vectors, scalar
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_UNROLLED = (4, 8, 2, 1)
_TOGETHER = (1, 2, 4, 3, 8, 6, 12, 16)
"""In an iteration; those first that are compared first: where cycles are near, less code is preferred."""
_MOST_VECTORS = 120
"""Of an iteration."""


@dataclass(frozen=True)
class _Reduction:
    """REDUCE_SUM, REDUCE_MAX or REDUCE_MIN of rows, as of `algorithms.reduction`."""

    op: str
    dtype: str
    rows: int
    length: int
    first: int

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        return {}

    def program(self) -> Program:
        return algorithms.reduction(self.op, self.dtype, self.rows, self.length, self.first)


class ReductionSketch(_Reduction):
    """On cores without vectors."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The number that is open: `unroll`, elements of an iteration."""
        return {"unroll": _UNROLLED}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        if int(knobs["unroll"]) > self.length:
            raise RefusedError(f"{self.length} elements have no iteration of {knobs['unroll']}")
        return scalar(self.length, int(knobs["unroll"]))

    def cost(self, knobs: Knobs) -> float:
        return _UNROLLED.index(int(knobs["unroll"]))


class _VectorSketch(_Reduction):
    """On cores with vectors."""

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return REGISTERS["q"] // BYTES[self.dtype]

    def numbers(self, together: int, ahead: int) -> Rows:
        """The numbers of a schedule."""
        return Rows(self.rows, self.length, self.lanes, self.op != "add", self.dtype, together, ahead)

    @abstractmethod
    def iterations(self, together: int) -> int:
        """How many iterations of `together` rows or vectors there are."""

    def cost(self, knobs: Knobs) -> float:
        together, ahead = (int(number) for number in knobs.values())
        iterations = self.iterations(together)
        if not iterations or (ahead and iterations == 1):
            raise RefusedError(f"there is no iteration of {together} to run {ahead} loads ahead")
        return abs(ahead - 1) + _TOGETHER.index(together) / 4


class RowsSketch(_VectorSketch):
    """Iterations over the rows; see `sketches.reductions.by_rows`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `rows` in an iteration, and `ahead`, loads that run an iteration ahead."""
        return {"rows": (1, 2, 4, 3), "ahead": (1, 2, 0, 3, 4)}

    def iterations(self, together: int) -> int:
        return self.rows // together

    def steps(self, knobs: Knobs) -> Iterator[str]:
        rows, vectors = int(knobs["rows"]), -(-self.length // self.lanes)
        if rows * vectors > _MOST_VECTORS:
            raise RefusedError(f"an iteration of {rows * vectors} vectors is too long")
        return by_rows(self.numbers(rows, int(knobs["ahead"])))


class VectorsSketch(_VectorSketch):
    """Iterations over the vectors of a row; see `sketches.reductions.by_vectors`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `vectors` in an iteration, and `ahead`, loads that run an iteration ahead."""
        return {"vectors": _TOGETHER, "ahead": (1, 2, 0, 3, 4)}

    def iterations(self, together: int) -> int:
        return self.length // (together * self.lanes)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return by_vectors(self.numbers(int(knobs["vectors"]), int(knobs["ahead"])))
