"""CONV2D of windows that are one pixel by weights of four bits, with the numbers that its schedules on cores with
vectors leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form, sixteen_times
from tosaic.backends.cortex_m.kernels.vector_conv2d import VectorConv2d
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.nibbles import NibbleRows, nibble_rows
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, FactorTypes, PixelRows, RowResult
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart
from tosaic.backends.cortex_m.program.sketches.row_parts import row_parts
from tosaic.backends.cortex_m.program.tree import BYTES, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

NIBBLES = "nibbles"
"""What the variant is called."""
_SUMS = (64, 128, 32)
"""In scratch memory at a time, about."""
_MOST_INSTRUCTIONS = 960
"""Of an iteration, so that it is in the reach of its end."""
_MOST_SUMS = 3
"""Of groups that are several vectors, beside as many sums of all groups."""
_CODE = 2
"""Cycles that an instruction less is worth."""
_ENTRY = 20
"""Cycles of a block around its hardware loop."""


@dataclass(frozen=True)
class NibbleSketch(VectorConv2d):
    """CONV2D of int8 whose weights lie two in a byte; see `sketches.nibbles`.

    Args:
        group: weights that have a factor.
    """

    group: int
    compared: ClassVar[int] = 3
    near: ClassVar[float] = 1.01

    @property
    def result(self) -> RowResult:
        return replace(super().result, sixteen=True)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `PixelRows`."""
        whole = self.channels // LANES * LANES if self.epilogue.element == "i8" else self.channels
        blocks = [n for n in range(LANES, min(whole, max(_SUMS)) + 1, LANES) if whole % n == 0] or [self.channels]
        near = [min(blocks, key=lambda n: abs(n - sums)) for sums in _SUMS]
        groups = -(-self.geometry.depth // self.group)
        return {
            "width": (4, 3, 2, 1),
            "block": tuple(dict.fromkeys(near)),
            "unroll": (0, *(n for n in (2, 1, 4) if groups % n == 0 and groups > n)),
            "epilogue_unroll": (2, 1) if whole > LANES else (1,),
            "ahead": (1, 0),
            "epilogue_ahead": (3, 0) if whole > LANES else (0,),
        }

    def rows(self, knobs: Knobs) -> NibbleRows:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        width, block, unroll, epilogue_unroll, ahead, epilogue_ahead = (
            int(knobs[name]) for name in ("width", "block", "unroll", "epilogue_unroll", "ahead", "epilogue_ahead")
        )
        if block % (self.lanes * epilogue_unroll) and epilogue_unroll > 1:
            raise RefusedError(f"a block of {block} channels has no iterations of {epilogue_unroll} vectors")
        if epilogue_ahead and block <= self.lanes * max(epilogue_unroll, LANES // self.lanes):
            raise RefusedError("there is no further iteration of which loads could run ahead")
        rows = PixelRows(
            self.geometry.pixels, self.channels, self.geometry.depth, self.result, 1, width, 1, 1, block, 1, unroll, 0,
            epilogue_unroll, ahead,  epilogue_ahead,
        )  # fmt: skip
        found = NibbleRows(rows, self.group)
        if width > _MOST_SUMS and found.chunks > 1 and found.groups > 1:
            raise RefusedError(f"{width} sums of groups, and as many of all, find no registers")
        if max(self._iteration(found, part) for part in row_parts(rows)) > _MOST_INSTRUCTIONS:
            raise RefusedError("an iteration is too long")
        if ahead and all(found.iterations(part) < 2 for part in row_parts(rows)):
            raise RefusedError("there is no further iteration of which loads could run ahead")
        return found

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return nibble_rows(self.rows(knobs))

    def cost(self, knobs: Knobs) -> float:
        s = self.rows(knobs)
        return self._cycles(s) + _CODE * self._instructions(s)

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        """The cycles of the core, bytes of working memory, and instructions."""
        s = self.rows(knobs)
        sizes = [4 * max(part.block for part in row_parts(s.rows)), s.groups * s.group * s.copied]
        scratch = sum(round_up(size + SLACK, LANES) for size in sizes if size)
        return {"estimate": self._cycles(s), "scratch": scratch, "code": self._instructions(s)}

    def _instructions(self, s: NibbleRows) -> int:
        """About the instructions of its code."""
        return sum(self._iteration(s, part) + 40 * s.rows.epilogue_unroll for part in row_parts(s.rows))

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        """A loop over the channels for each pixel."""
        s, pixels = self.rows(knobs), self.geometry.pixels
        each = s.groups * (1 + s.group // 2) + self.result.factor_bytes
        element = BYTES[self.result.element]
        accesses = (
            ArrayAccess("image", "input", s.rows.depth, (s.rows.depth, 0)),
            ArrayAccess("weights", "params", each, (0, each)),
            ArrayAccess("sums", "scratch", FOUR, (0, FOUR), writes=True),
            ArrayAccess("out", "output", element, (self.channels * element, element), writes=True),
        )
        return [Walk((pixels, self.channels), accesses)]

    def _cycles(self, s: NibbleRows) -> float:
        """About its cycles: one for each instruction, and what the epilogue does."""
        sums = 0.0
        for part in row_parts(s.rows):
            iteration, blocks = self._iteration(s, part), part.channels / part.block
            tiles = part.block // s.width(part)
            sums += blocks * (
                tiles * (s.iterations(part) * iteration + _ENTRY) if s.rows.unroll else tiles * iteration + 2 * _ENTRY
            )
        epilogue = self.channels / FOUR * (12 + 3 / s.rows.epilogue_unroll + (s.rows.epilogue_ahead == 0))
        copy = s.rows.depth / LANES * 3 * s.copied
        return self.geometry.pixels * (sums + epilogue + copy)

    def _iteration(self, s: NibbleRows, part: RowPart) -> int:
        """About the instructions of an iteration."""
        width, groups = s.width(part), s.rows.unroll or s.groups
        shared = 2 if s.chunks == 1 or width > 1 else 2 * width
        return groups * (s.chunks * (shared + 5 * width) + 2 * width) + (0 if s.rows.unroll else width + 4)


def nibble_sketch(
    geometry: Geometry,
    channels: int,
    epilogue: Epilogue,
    constants: Mapping[str, np.ndarray],
    group: int,
    types: FactorTypes,
) -> NibbleSketch | None:
    """The sketch of windows that are one pixel; None where no `group` of weights has four bits."""
    if not group:
        return None
    form = rescale_form(sixteen_times(constants))
    return NibbleSketch(geometry, channels, epilogue, form, constants, group, types=types)
