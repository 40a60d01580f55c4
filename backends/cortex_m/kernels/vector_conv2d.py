"""What the sketches of CONV2D with vectors have in common: the workload, and how its sums become results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import assignments
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, RowResult
from tosaic.backends.cortex_m.program.tree import Program
from tosaic.tuner.space import Choice


@dataclass(frozen=True)
class VectorConv2d:
    """CONV2D of int8 and its RESCALE.

    Args:
        form: of the RESCALE, as of `RowResult`.
    """

    geometry: Geometry
    channels: int
    epilogue: Epilogue
    form: str
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def result(self) -> RowResult:
        """How sums become results."""
        return RowResult(self.form, self.epilogue.element, self.epilogue.clamped, self.epilogue.table)

    @property
    def lanes(self) -> int:
        """Results of a vector that is stored."""
        return LANES if self.epilogue.element == "i8" else FOUR

    def groups(self, knobs: Mapping[str, Sequence[Choice]], site: Site) -> Iterator[Iterable[dict[str, Choice]]]:
        """All assignments, each of which is a group."""
        return ([each] for each in assignments(knobs))

    def program(self) -> Program:
        return algorithms.conv2d(self.geometry, self.channels, self.epilogue)
