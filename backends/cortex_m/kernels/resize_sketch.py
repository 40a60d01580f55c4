"""RESIZE with the numbers that its schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernels.sketch_constants import scale_of_sums
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.resizing import GatheredResizing, Nearest, Resizing
from tosaic.backends.cortex_m.program.sketches.gathers import HALVES, GatheredRow, gathered
from tosaic.backends.cortex_m.program.sketches.lanes import PoolAverage
from tosaic.backends.cortex_m.program.sketches.movement import written_out
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_UNROLLED = (8, 4, 2, 16, 1)
_MANY = 20
"""Channels, of which what is left of vectors costs little."""


@dataclass(frozen=True)
class ResizeSketch:
    """Bilinear RESIZE with loops of C.

    Args:
        scales: the forms that the RESCALE may have.
    """

    what: Resizing
    scales: tuple[str, ...]
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def in_halves(self) -> bool:
        """Whether a compiler with vectors of eight halves finds iterations for most of them, and no product beyond
        these."""
        what = self.what
        narrow = what.narrow is not None and what.narrow.factor == 1
        return narrow and (what.channels % HALVES == 0 or what.channels >= _MANY)

    def program(self) -> Program:
        return self.what.program()

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `unroll`, elements in an iteration; `scale`, the form of the RESCALE.

        With MVE the compiler makes vectors of loops of single elements.
        """
        return {"unroll": (1,) if core.mve else _UNROLLED, "scale": self.scales}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        count, what = int(knobs["unroll"]), self.what
        if count > what.row:
            raise RefusedError(f"rows of {what.row} have no iteration of {count}")
        yield "place(S, r)"
        if knobs["scale"] == "high":
            yield "rewrite(out, high)"
        if count > 1:
            yield from written_out("i", what.row, count) if what.shared else ()
            yield from written_out("c", what.channels, min(count, what.channels))

    def cost(self, knobs: Knobs) -> float:
        return _UNROLLED.index(int(knobs["unroll"])) + (knobs["scale"] == "wide")


@dataclass(frozen=True)
class GatheredPixels:
    """Bilinear RESIZE of int8 to int8 whose pixels are gathered; see `sketches.gathers`."""

    what: GatheredResizing
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    def program(self) -> Program:
        return self.what.program()

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `vectors` in an iteration; `ahead`, loads that run an iteration ahead."""
        return {"vectors": (4, 3, 2, 1), "ahead": (4, 2, 0, 1, 3)}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        vectors, elements = int(knobs["vectors"]), self.what.elements
        if HALVES * vectors > elements:
            raise RefusedError(f"a row of {elements} has no iteration of {vectors} vectors")
        return gathered(GatheredRow(elements, vectors, int(knobs["ahead"]), self.what.wide, self._average))

    def cost(self, knobs: Knobs) -> float:
        """Vectors that are computed, and what an iteration takes beside, and waits."""
        vectors, ahead = int(knobs["vectors"]), int(knobs["ahead"])
        iterations = -(-self.what.elements // (HALVES * vectors))
        return iterations * (vectors + 1 / (1 + ahead))

    @property
    def _average(self) -> PoolAverage:
        """How sums become results."""
        multiplier, shift, zero = (self.constants[name].astype(np.int64) for name in ("multiplier", "shift", "zero"))
        rule, factors = scale_of_sums(multiplier, shift)
        rules = (rule, "narrow") if zero.any() else ("nothing_added", rule, "halves")
        factors = (*factors, *(["zero_half"] if zero.any() else []))
        return PoolAverage(rules, factors, (), bool(zero.any()), centered=False, begun=False, result="i8")


@dataclass(frozen=True)
class NearestSketch:
    """RESIZE to the nearest pixels with loops of C."""

    what: Nearest

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        return self.what.tables

    def program(self) -> Program:
        return self.what.program()

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """None is open: the compiler knows copies of pixels well."""
        return {}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return iter(())

    def cost(self, knobs: Knobs) -> float:
        return 0
