"""CONV2D of windows of one pixel whose weights stay in vectors, with the numbers that its schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.vector_conv2d import VectorConv2d
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR
from tosaic.backends.cortex_m.program.sketches.weight_stationary import WeightStationary, weight_stationary
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_MOST_STAYING = 5
"""Vectors that stay, so that others find registers."""


@dataclass(frozen=True)
class WeightStationarySketch(VectorConv2d):
    """CONV2D of int8 to int8 whose windows are one pixel each; see `sketches.weight_stationary`."""

    compared: ClassVar[int] = 8
    near: ClassVar[float] = 1.01

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `WeightStationary`."""
        return {"held": (2, 1, 4, 0, 3), "factors": ("held", "read"), "unroll": (2, 4, 1, 3, 6, 5, 7)}

    def stationary(self, knobs: Knobs) -> WeightStationary:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        held, unroll, factors = int(knobs["held"]), int(knobs["unroll"]), knobs["factors"] == "held"
        g = self.geometry
        found = WeightStationary(g.columns, self.channels, g.depth, self.result, held, factors, unroll)
        if found.staying > _MOST_STAYING + (held == FOUR and found.vectors == 1):
            raise RefusedError(f"{found.staying} vectors that stay leave no registers")
        if found.row - found.rest < 2 * unroll:
            raise RefusedError(f"{found.row} pixels have no iterations of {unroll}")
        return found

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return weight_stationary(self.stationary(knobs))

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        """The cycles of the core, and instructions; there is no working memory."""
        found = self.stationary(knobs)
        return {"estimate": self.cost(knobs), "scratch": 0, "code": found.unroll * (9 * found.vectors + 10)}

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        """The loops over rows, groups of channels of one epilogue, and pixels."""
        g = self.geometry
        read, apart = FOUR * (g.depth + 12), g.stride[1] * g.depth
        loops = (float(g.batch * g.rows), self.channels / FOUR, float(g.columns))
        accesses = (
            ArrayAccess("image", "input", g.depth, (g.stride[0] * g.width * g.depth, 0, apart)),
            ArrayAccess("weights", "params", read, (0, read, 0)),
            ArrayAccess("out", "output", FOUR, (g.columns * self.channels, FOUR, self.channels), writes=True),
        )
        return [Walk(loops, accesses)]

    def cost(self, knobs: Knobs) -> float:
        return self.geometry.batch * self.geometry.rows * self.stationary(knobs).cost
