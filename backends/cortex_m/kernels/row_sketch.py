"""CONV2D of one pixel, with the numbers that its schedules on cores with vectors leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form
from tosaic.backends.cortex_m.kernels.vector_conv2d import VectorConv2d, joined_cycles
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, FactorTypes, PixelRows
from tosaic.backends.cortex_m.program.sketches.row_parts import row_parts
from tosaic.backends.cortex_m.program.sketches.rows import rows_of_pixels
from tosaic.backends.cortex_m.program.tree import BYTES, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_FEW_SUMS, _MOST_SUMS = 64, 256
"""In scratch memory at a time: at first, and at most."""
_BLOCKS = 3
"""Sizes that are looked at."""
_AHEAD, _EPILOGUE_AHEAD = 1, 3
"""Loads that most often run an iteration ahead of the sums, and of the epilogue."""
_MOST_INSTRUCTIONS = 960
"""Of an iteration, so that it is in the reach of its end."""
_MOST_WIDTH = 7
"""Sums that registers hold."""
_MOST_HELD = 6
"""Vectors that stay, so that others find registers."""
_CODE = 2
"""Cycles that an instruction less is worth."""
_ENTRY = 20
"""Cycles of a block around its hardware loop."""


@dataclass(frozen=True)
class RowSketch(VectorConv2d):
    """CONV2D whose window is all of its image; see `sketches.rows`."""

    compared: ClassVar[int] = 3
    near: ClassVar[float] = 1.01

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `PixelRows`."""
        depth, one = self.depth, self.epilogue.element == "i8"
        vectors, whole = depth // self.window_lanes, self.channels // LANES * LANES if one else self.channels
        blocks = [n for n in range(LANES, min(whole, _MOST_SUMS) + 1, LANES) if whole % n == 0] or [self.channels]
        blocks = sorted(blocks, key=lambda n: (n > _FEW_SUMS, abs(n - _FEW_SUMS)))
        several = whole > LANES and not self.parts
        return {
            "width": tuple(n for n in (4, 6, _MOST_WIDTH, 5, 3, 2, 1) if n <= min(blocks)),
            "block": tuple(blocks[:_BLOCKS]),
            "repeats": (1, 2),
            "unroll": (0, *(n for n in (4, 2, 8, 1) if vectors % n == 0 and vectors > n)),
            "held": tuple(dict.fromkeys(min(vectors, n) for n in (_MOST_HELD, 4, 2, 0))),
            "epilogue_unroll": (2, 4, 1) if several else (1,),
            "ahead": (1, 2, 0),
            "epilogue_ahead": (3, 2, 0) if several else (0,),
        }

    def row(self, knobs: Knobs) -> PixelRows:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        width, block, repeats, unroll, held, epilogue_unroll, ahead, epilogue_ahead = (
            int(knobs[name])
            for name in ("width", "block", "repeats", "unroll", "held", "epilogue_unroll", "ahead", "epilogue_ahead")
        )
        depth = self.depth
        vectors = -(-depth // self.window_lanes)
        if width == _MOST_WIDTH and depth % self.window_lanes:
            raise RefusedError(f"{width} sums leave no register for a mask")
        if block // width % repeats:
            raise RefusedError(f"a block of {block} channels has no iterations of {repeats * width}")
        if block % (self.lanes * epilogue_unroll) and epilogue_unroll > 1:
            raise RefusedError(f"a block of {block} channels has no iterations of {epilogue_unroll} vectors")
        if unroll and (held or repeats > 1):
            raise RefusedError("where a hardware loop goes over the depth, no vector stays")
        instructions = (unroll or vectors) * (2 * width + 1) * repeats
        if instructions > _MOST_INSTRUCTIONS and (not unroll or unroll > 1):
            raise RefusedError(f"an iteration of {instructions} instructions is too long")
        iterations = depth // self.window_lanes // unroll if unroll else block // width // repeats
        least = self.lanes * max(epilogue_unroll, LANES // self.lanes)
        if (ahead and iterations < 2) or (epilogue_ahead and block <= least):
            raise RefusedError("there is no further iteration of which loads could run ahead")
        if held + ahead > _MOST_HELD + 1:
            raise RefusedError(f"{held} vectors that stay leave no registers")
        return PixelRows(
            1, self.channels, depth, self.result, 1, width, 1, 1, block, repeats, unroll, held, epilogue_unroll, ahead,
            epilogue_ahead, element=self.element, parts=self.parts,
        )  # fmt: skip

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return rows_of_pixels(self.row(knobs))

    def cost(self, knobs: Knobs) -> float:
        s = self.row(knobs)
        unlikely = abs(s.ahead - _AHEAD) + abs(s.epilogue_ahead - _EPILOGUE_AHEAD) + (s.epilogue_unroll > 2)
        return self._cycles(s) * (1 + unlikely / 100) + _CODE * self._instructions(s)

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        """The cycles of the core, bytes of working memory, and instructions."""
        s = self.row(knobs)
        scratch = FOUR * s.sums * max(part.block for part in row_parts(s)) + SLACK
        return {
            "estimate": self._cycles(s),
            "scratch": -(-scratch // LANES) * LANES,
            "code": self._instructions(s),
        }

    def _instructions(self, s: PixelRows) -> int:
        """About the instructions of its code."""
        rest = s.block % s.width
        iterations = (2 * s.width + 1) * s.repeats + (2 * rest + 1) * (rest > 0)
        return (s.unroll or -(-s.depth // s.lanes)) * iterations + 40 * s.epilogue_unroll

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        """One loop over the channels."""
        s = self.row(knobs)
        factors = s.result.factor_bytes
        accesses = (
            ArrayAccess("image", "input", self.geometry.depth * BYTES[s.element], (0,)),
            ArrayAccess("weights", "params", self.geometry.depth + factors, (self.geometry.depth + factors,)),
            ArrayAccess("sums", "scratch", FOUR, (FOUR,), writes=True),
            ArrayAccess("out", "output", BYTES[s.result.element], (BYTES[s.result.element],), writes=True),
        )
        return [Walk((s.channels,), accesses)]

    def _cycles(self, s: PixelRows) -> float:
        """About its cycles: what the multiplier, or the loads, take, and what the epilogue does."""
        iterations, rest = divmod(s.block, s.width)
        block = (
            iterations * self._iteration(s, s.width)
            + (self._iteration(s, rest) + _ENTRY if rest else 0)
            + 2 * (_ENTRY + s.held)
        )
        epilogue = s.channels / FOUR * (12 + 3 / s.epilogue_unroll + (s.epilogue_ahead == 0))
        if s.parts:
            epilogue = joined_cycles(s.channels, s.parts)
        return s.channels / s.block * s.sums * block + epilogue

    def _iteration(self, s: PixelRows, width: int) -> float:
        """Cycles of the sums of so many channels."""
        vectors = -(-s.depth // s.lanes)
        loads = vectors * (width + 1)
        if s.unroll:
            return 2 * loads + _ENTRY + 4 * vectors / s.unroll
        loads -= s.held * (width == s.width)
        return 2 * max(vectors * width, loads) + width / 2 + 3 / s.repeats + (s.ahead == 0)


def row_sketch(
    geometry: Geometry,
    channels: int,
    epilogue: Epilogue,
    constants: Mapping[str, np.ndarray],
    element: str,
    types: FactorTypes,
) -> RowSketch | None:
    """The sketch; None where there are several pixels, or a window is not all of its image."""
    if geometry.pixels > 1 or not geometry.dense:
        return None
    form = rescale_form(constants)
    return RowSketch(geometry, channels, epilogue, form, constants, element=element, types=types)
