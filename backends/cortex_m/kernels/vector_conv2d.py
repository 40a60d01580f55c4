"""What the sketches of CONV2D with vectors have in common: the workload, and how its sums become results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.guesses import assignments
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.image_strips import lanes_of
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, WORDS, FactorTypes, RowResult
from tosaic.tuner.space import Choice

_JOINED, _PART = 14, 4
"""Cycles of a result of a sum of 48 bits, and of each part of that."""


@dataclass(frozen=True)
class VectorConv2d:
    """CONV2D by weights of int8, and its RESCALE.

    Args:
        form: of the RESCALE, as of `RowResult`.
        element: the type of the input.
        types: how what a channel has of its own lies in memory.
        fits: whether scaled sums fit 16 bits.
    """

    geometry: Geometry
    channels: int
    epilogue: Epilogue
    form: str
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    element: str = field(default="i8", kw_only=True)
    types: FactorTypes = field(default=WORDS, kw_only=True)
    fits: bool = field(default=False, kw_only=True)

    @property
    def result(self) -> RowResult:
        """How sums become results."""
        e = self.epilogue
        return RowResult(self.form, e.element, e.clamped, e.table, types=self.types, fits=self.fits)

    @property
    def parts(self) -> int:
        """Of a sum of 48 bits, as of `Epilogue`."""
        return self.epilogue.parts

    @property
    def part(self) -> int:
        """Elements of a window that are added up alone."""
        return self.geometry.depth // max(1, self.parts)

    @property
    def depth(self) -> int:
        """The same, or as many of them as lie in a row of the image."""
        return self.part

    @property
    def lanes(self) -> int:
        """Results of a vector that is stored."""
        return LANES if self.epilogue.element == "i8" else FOUR

    @property
    def window_lanes(self) -> int:
        """Elements of a vector of a window."""
        return lanes_of(self.element)

    def groups(self, knobs: Mapping[str, Sequence[Choice]], site: Site) -> Iterator[Iterable[dict[str, Choice]]]:
        """All assignments, each of which is a group."""
        return ([each] for each in assignments(knobs))

    def program(self) -> Program:
        return algorithms.conv2d(self.geometry, self.channels, self.epilogue, self.element)


def joined_cycles(results: int, parts: int) -> float:
    """About the cycles of so many results of sums of 48 bits."""
    return results * (_JOINED + _PART * parts)
