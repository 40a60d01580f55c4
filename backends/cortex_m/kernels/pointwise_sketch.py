"""Pointwise functions of integers with the numbers that their schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.nest.elementwise import Elementwise
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.pointwise import pointwise
from tosaic.backends.cortex_m.program.sketches.elementwise import unrolled
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_UNROLLED = (4, 2, 1, 8)


@dataclass(frozen=True)
class PointwiseSketch:
    """A pointwise function, by its text."""

    function: str
    made: Program = field(repr=False, compare=False)
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @staticmethod
    def of(function: str, what: Elementwise, arguments: int) -> PointwiseSketch | None:
        """The sketch of a function with so many arguments; None where a program has no operation for it."""
        try:
            return PointwiseSketch(function, *pointwise(what, arguments))
        except RefusedError:
            return None

    def program(self) -> Program:
        return self.made

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The number that is open: `unroll`, elements of a turn."""
        return {"unroll": _UNROLLED}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        elements, factor = self.made.loop("x").extent, int(knobs["unroll"])
        if factor > elements:
            raise RefusedError(f"{elements} elements have no turn of {factor}")
        return unrolled(elements, factor)

    def cost(self, knobs: Knobs) -> float:
        return _UNROLLED.index(int(knobs["unroll"]))
