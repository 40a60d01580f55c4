"""CONV2D of pixels that are whole vectors, with the numbers that its schedules on cores with vectors leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.cortex_m.program.kernel import Knobs, Sketched
from tosaic.backends.cortex_m.program.sketches.vectors import LANES, Resident, Summed, resident, summed
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TILES = ("3x2", "2x2", "7x1", "6x1", "5x1", "4x1", "3x1", "2x1", "1x4", "1x2", "1x1")
_MOST_SUMS = 4096
"""Of a tile of pixels that lie in scratch memory at a time."""
_MOST_PRODUCTS = 160
"""Vectors of products in a turn, so that it is in the reach of its end."""
_AHEAD, _FINISH_AHEAD = 2, 3
"""Loads that most often run a turn ahead of the sums, and of the finish."""
_FINISH = 2
"""Vectors of results in a turn; more take much code for few cycles."""
_MOST_HELD = 5
"""Vectors that stay, so that others find registers."""
_SHALLOW = 4
"""Vectors of a window of which weights may stay in registers."""


@dataclass(frozen=True)
class _VectorSite:
    """CONV2D of int8 to int8 whose window is one pixel of whole vectors.

    Args:
        rounded: whether every shift can be 31.
    """

    compared: ClassVar[int] = 8

    geometry: Geometry
    channels: int
    epilogue: Epilogue
    rounded: bool
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def pixels(self) -> int:
        return self.geometry.columns

    @property
    def vectors(self) -> int:
        return self.geometry.depth // LANES

    def program(self) -> Program:
        return algorithms.conv2d(self.geometry, self.channels, self.epilogue)

    def _walk(self, pixels: int, *, channels_first: bool) -> Walk:
        """The loops over tiles of so many pixels, and over groups of channels that are finished together."""
        depth, group = self.geometry.depth, 4 if channels_first else LANES
        read, turns = group * (depth + 12), (self.pixels / pixels, self.channels / group)
        strides = [(depth * pixels, 0), (0, read), (self.channels * pixels, group)]
        image, weights, out = (each[::-1] if channels_first else each for each in strides)
        accesses = (
            ArrayAccess("image", "input", depth * pixels, image),
            ArrayAccess("weights", "params", read, weights),
            ArrayAccess("out", "output", group, out, writes=True, inner=((pixels, self.channels),)),
        )
        return Walk(turns[::-1] if channels_first else turns, accesses)


class SummedSketch(_VectorSite):
    """Sums that go through memory; see `sketches.vectors.Summed`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, pixels x channels of the sums in registers; the others as of `Summed`."""
        groups = self.channels // LANES
        return {
            "tile": _TILES,
            "tiles": (1, 2, 3, 4),
            "share": (2, 1),
            "unroll": (0, *(n for n in (4, 2, 1, 8) if self.vectors % n == 0 and self.vectors > n)),
            "repeats": (4, 2, 1, 8, 16),
            "finish": tuple(n for n in (2, 1, 4, 3) if groups % n == 0),
            "ahead": (2, 3, 1, 0),
            "finish_ahead": (3, 2, 1, 0),
        }

    def summed(self, knobs: Knobs) -> Summed:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        pixels, width = map(int, str(knobs["tile"]).split("x"))
        tiles, share, unroll, repeats, finish, ahead, finish_ahead = (
            int(knobs[name]) for name in ("tiles", "share", "unroll", "repeats", "finish", "ahead", "finish_ahead")
        )
        size = self.pixels, self.channels, self.vectors, self.rounded
        found = Summed(*size, pixels, width, tiles, share, unroll, repeats, finish, ahead, finish_ahead)
        together, groups = found.together, self.channels // LANES
        if together > self.pixels or together % share or (tiles > 1 and pixels == 1):
            raise RefusedError(f"{self.pixels} pixels have no {tiles} tiles of {knobs['tile']} that share by {share}")
        if together * self.channels > _MOST_SUMS and tiles > 1:
            raise RefusedError(f"{together} pixels of {self.channels} sums take too much memory")
        if repeats not in found.levels or (unroll and repeats > 1):
            raise RefusedError(f"no turn has {repeats} blocks of {width} channels")
        products = pixels * width * (unroll or self.vectors) * repeats
        if products > _MOST_PRODUCTS and (repeats > 1 or unroll > 1 or not unroll):
            raise RefusedError(f"a turn of {products} products is too long")
        blocks = groups * 4 * (4 // width)
        if ahead and (self.vectors // unroll if unroll else blocks // repeats) < 2:
            raise RefusedError("the sums have no further turn")
        if finish_ahead and groups // finish < 2:
            raise RefusedError("the finish has no further turn")
        return found

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return summed(self.summed(knobs))

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        """The cycles of the core, bytes of working memory, and instructions."""
        found = self.summed(knobs)
        products = found.pixels * found.width * (found.unroll or self.vectors) * found.repeats
        code = 2 * products + 40 * found.share * found.finish
        scratch = round_up(4 * found.together * self.channels + SLACK, LANES)
        return {"estimate": found.cost, "scratch": scratch, "code": code}

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        return [self._walk(self.summed(knobs).together, channels_first=False)]

    def cost(self, knobs: Knobs) -> float:
        found = self.summed(knobs)
        unlikely = abs(found.ahead - _AHEAD) + abs(found.finish_ahead - _FINISH_AHEAD) + (found.finish > _FINISH)
        return found.cost * (1 + unlikely / 50)


class ResidentSketch(_VectorSite):
    """Weights that stay in registers; see `sketches.vectors.Resident`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `Resident`."""
        return {"held": (2, 1, 4, 0, 3), "factors": ("held", "read"), "unroll": (2, 4, 1, 3, 6)}

    def resident(self, knobs: Knobs) -> Resident:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        held, unroll, factors = int(knobs["held"]), int(knobs["unroll"]), knobs["factors"] == "held"
        if held + (3 - self.rounded) * factors > _MOST_HELD + (held == 4 and self.vectors == 1):
            raise RefusedError(f"{held} vectors of weights leave no registers")
        if self.pixels < 2 * unroll:
            raise RefusedError(f"{self.pixels} pixels have no turns of {unroll}")
        return Resident(self.pixels, self.channels, self.vectors, self.rounded, held, factors, unroll)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return resident(self.resident(knobs))

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        """The cycles of the core, and instructions; there is no working memory."""
        found = self.resident(knobs)
        return {"estimate": found.cost, "scratch": 0, "code": found.unroll * (9 * self.vectors + 10)}

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        return [self._walk(1, channels_first=True)]

    def cost(self, knobs: Knobs) -> float:
        return self.resident(knobs).cost


def vector_sketches(
    geometry: Geometry, channels: int, epilogue: Epilogue, constants: Mapping[str, np.ndarray]
) -> dict[str, Sketched]:
    """The sketches by the variant's name.

    There are none where windows are no pixels of whole vectors, there is one pixel, results are looked up or have
    bounds, or shifts allow no RESCALE of vectors.
    """
    whole = geometry.kernel == (1, 1) and not any(geometry.pad) and geometry.depth % LANES == 0
    plain = geometry.batch == geometry.rows == 1 and geometry.columns == geometry.width > 1
    if not whole or not plain or epilogue.clamped or epilogue.table:
        return {}
    multiplier, shift = (constants[name].astype(np.int64) for name in ("multiplier", "shift"))
    rounded = DERIVED["whole"](multiplier, shift) is not None
    if not rounded and DERIVED["down"](shift) is None:
        return {}
    found: dict[str, Sketched] = {}
    if channels % LANES == 0:
        found["summed"] = SummedSketch(geometry, channels, epilogue, rounded, constants)
    if channels % 4 == 0 and geometry.depth // LANES <= _SHALLOW:
        found["resident_vectors"] = ResidentSketch(geometry, channels, epilogue, rounded, constants)
    return found
