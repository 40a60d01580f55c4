"""Pointwise functions with the numbers that their schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.isa.isa import sets_of
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.lane_vectors import VECTOR
from tosaic.backends.cortex_m.program.pointwise import Elementwise
from tosaic.backends.cortex_m.program.pointwise_lanes import pointwise_lanes
from tosaic.backends.cortex_m.program.pointwise_scalars import pointwise
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import parse_steps, replayed
from tosaic.backends.cortex_m.program.sketches.elementwise import Vectors, in_lanes, unrolled
from tosaic.backends.cortex_m.program.touches import tables_of
from tosaic.backends.cortex_m.program.tree import LEAVES, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_UNROLLED = (4, 2, 1, 8)
_VECTORS = (2, 1, 4, 8)
"""Vectors of an iteration."""
_ITERATION, _ALONE = 4, 2
"""What an iteration takes beside its vectors, and what each waits that no other one runs beside."""


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
        """The number that is open: `unroll`, elements of an iteration."""
        return {"unroll": _UNROLLED}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        elements, factor = self.made.loop("x").extent, int(knobs["unroll"])
        if factor > elements:
            raise RefusedError(f"{elements} elements have no iteration of {factor}")
        return unrolled(elements, factor)

    def cost(self, knobs: Knobs) -> float:
        return _UNROLLED.index(int(knobs["unroll"]))


@dataclass(frozen=True)
class LaneSketch:
    """A pointwise function for vectors, by its program: functions that differ in numbers of the params are one.

    Args:
        staged: whether what a channel needs alone is computed first.
        narrowest: bits of the narrowest lanes that hold what lies in memory.
    """

    compared: ClassVar[int] = 12
    near: ClassVar[float] = 1.04

    staged: bool
    narrowest: int
    made: Program
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @staticmethod
    def of(what: Elementwise, arguments: int, *, staged: bool) -> LaneSketch:
        """The sketch of a function with so many arguments."""
        made, constants = pointwise_lanes(what, arguments, staged=staged)
        return LaneSketch(staged, what.narrowest, made, constants)

    def program(self) -> Program:
        return self.made

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `lanes`, the bits of a lane; `unroll`, vectors of an iteration; `beside`, how many
        of them take turns; `params`, whether tables are read where they lie, or copied first."""
        return {
            "lanes": tuple(bits for bits in (16, 8, 32) if bits >= self.narrowest),
            "unroll": _VECTORS,
            "beside": (1, 2),
            "params": ("in_place", "scratch") if tables_of(self.made.body) else ("in_place",),
            "isa": tuple(sets_of(core))[:1],
        }

    def steps(self, knobs: Knobs) -> Iterator[str]:
        lanes, unroll, beside = (int(knobs[name]) for name in ("lanes", "unroll", "beside"))
        if unroll % beside or (unroll > 1 and unroll * VECTOR // lanes > self.made.loop("x").extent):
            raise RefusedError(f"no iteration has {unroll} vectors, {beside} of them side by side")
        vectors = Vectors(lanes, unroll, beside, knobs["params"] == "scratch", str(knobs["isa"]))
        return in_lanes(self.made, vectors)

    def cost(self, knobs: Knobs) -> float:
        """Instructions of an element, about."""
        lanes, unroll, beside = (int(knobs[name]) for name in ("lanes", "unroll", "beside"))
        return (_instructions(self, lanes) + _ITERATION / unroll + _ALONE / beside) * lanes


@lru_cache(maxsize=256)
def _instructions(what: LaneSketch, lanes: int) -> int:
    """Instructions of a vector of results."""
    extent, each = what.made.loop("x").extent, VECTOR // lanes
    cut = [f"cut(x, {each}, e)"] if extent > each else []
    steps = (*cut, f"split(x, xi, {min(extent, each)})", f"lanes(x, xi, {each})")
    vectors = replayed(what.made, parse_steps("\n".join(steps)))
    return sum(isinstance(s, LEAVES) for s in vectors.statements)
