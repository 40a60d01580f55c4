"""CONV2D and MATMUL of floats with the numbers that their schedules on cores with vectors leave open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program import floats
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sharing import Lines
from tosaic.backends.cortex_m.program.sketches.outer import outer
from tosaic.backends.cortex_m.program.sketches.outer_numbers import LANES, CopiedWindow, OuterBlock, OuterTiles
from tosaic.backends.cortex_m.program.sketches.tiles import TiledAxis, axis_of, lines_of, tile_sizes
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_MOST_SUMS = 6
_TILES = tuple(
    f"{pixels}x{LANES * vectors}"
    for pixels in range(1, _MOST_SUMS + 1)
    for vectors in range(1, _MOST_SUMS // pixels + 1)
)
_UNROLLED = (8, 4, 2, 1, 6, 12, 16, 3)
_FEW = 100
"""Elements of windows that are written out in all parts of an image."""
_MOST_ITERATION, _MOST_CODE = 960, 1000
"""Instructions of an iteration, so that it is in the reach of its end, and of all blocks."""
_UNLIKELY, _BESIDE, _CODE = 0.01, 0.0001, 0.05
"""The shares of loads that run ahead otherwise than most often, and of weights that are copied, which a choice costs;
and cycles that an instruction less is worth."""


@dataclass(frozen=True)
class FloatProduct:
    """CONV2D, or MATMUL, of floats.

    Args:
        geometry: of the windows; of a MATMUL, of windows of one pixel in images of one row.
        channels: of the output.
        kind: whether windows are `copied` first.
    """

    geometry: Geometry
    channels: int
    clamped: bool
    kind: Literal["conv2d", "copied", "matmul"]
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    compared: ClassVar[int] = 4

    def program(self) -> Program:
        g = self.geometry
        if self.kind == "matmul":
            return floats.matmul_f32(g.batch, g.columns, g.channels, self.channels, self.clamped)
        made = floats.copied_conv2d_f32 if self.kind == "copied" else floats.conv2d_f32
        return made(g, self.channels, self.clamped)

    @property
    def depth(self) -> int:
        """Elements that the loop over the depth counts."""
        return self.geometry.depth if self.kind == "copied" else self.geometry.channels

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, pixels x channels of the sums in vectors; `unroll`, elements of the depth
        in an iteration; `load`, whether elements are loaded two by two; `ahead`, loads that run an iteration ahead;
        `weights`, where a block of them is read for all pixels."""
        sizes = ((tile, *tile_sizes(tile)) for tile in _TILES)
        return {
            "tile": tuple(tile for tile, p, n in sizes if p <= self.geometry.columns and n - LANES < self.channels),
            "unroll": tuple(n for n in _UNROLLED if n <= self.depth) or (self.depth,),
            "load": ("pairs", "single"),
            "ahead": (1, 0, 2),
            "weights": ("params", "scratch"),
        }

    def tiles(self, knobs: Knobs) -> OuterTiles:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        (pixels, width), unroll, g = tile_sizes(str(knobs["tile"])), int(knobs["unroll"]), self.geometry
        if self.kind == "copied":
            down, across = TiledAxis(1, (g.rows,), False, g.rows), TiledAxis(pixels, (g.columns,), False, g.columns)
            window = CopiedWindow(g.kernel[1], g.channels, g.dilation[1] == 1, any(g.pad[2:]))
            kernel, padded = (1, 1), (False, False)
        else:
            down, across = axis_of(g, 0, 1, by_tile=False), axis_of(g, 1, pixels, by_tile=False)
            window, kernel, padded = None, g.kernel, (any(g.pad[:2]), any(g.pad[2:]))
        t = OuterTiles(
            self.channels, self.depth, kernel, padded, down, across, width // LANES, unroll,
            knobs["load"] == "pairs", int(knobs["ahead"]), self.clamped, self.kind != "matmul",
            knobs["weights"] == "scratch", window,
        )  # fmt: skip
        self._guard(t)
        return t

    def _guard(self, t: OuterTiles) -> None:
        """Guard: a schedule that the sketch has steps for.

        Raises:
            RefusedError: it has none.
        """
        one, copied = self.channels == 1, t.window is not None
        if one and self.clamped and t.across.size == 1:
            raise RefusedError("one result alone is no vector that has bounds")
        if t.kept and (t.several or one or not t.constant or t.depth == 1 or (copied and len(t.parts) > 1)):
            raise RefusedError("weights that several parts read are not copied")
        if t.kept and self.geometry.rows * t.across.iterations(0) == 1:
            raise RefusedError("weights that are read once are not copied")
        if t.pairs and (t.unroll % 2 or self.depth % 2 or one):
            raise RefusedError(f"{t.unroll} of {self.depth} elements are no pairs")
        if t.several and len(t.parts) > 1:
            raise RefusedError(f"parts of an image have whole blocks, not {self.channels} channels")
        if (iteration := max(each.iteration for _, each in self._blocks(t))) > _MOST_ITERATION:
            raise RefusedError(f"an iteration of {iteration} instructions is too long")
        if (code := self._instructions(t)) > _MOST_CODE:
            raise RefusedError(f"{code} instructions are too many")

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return outer(self.tiles(knobs))

    def cost(self, knobs: Knobs) -> float:
        t = self.tiles(knobs)
        return self._cycles(t) * (1 + _UNLIKELY * abs(t.ahead - 1) + _BESIDE * t.kept) + _CODE * self._instructions(t)

    def _cycles(self, t: OuterTiles) -> float:
        """About its cycles."""
        g = self.geometry
        tiles = g.rows * sum(map(t.across.iterations, range(len(t.across.parts))))
        cycles = sum(times * each.cycles for times, each in self._blocks(t))
        if t.window is not None:
            runs = g.kernel[0] * (1 if t.window.dense else g.kernel[1])
            cycles += tiles * t.across.size * runs * t.window.cycles
        return g.batch * cycles

    def _instructions(self, t: OuterTiles) -> int:
        """About those of its code."""
        return sum(each.instructions for _, each in self._blocks(t))

    def _blocks(self, t: OuterTiles) -> Iterator[tuple[int, OuterBlock]]:
        """The blocks of code, and how often each is executed for an image."""
        for (seen, down), (columns, across) in itertools.product(self._seen(t, 0), self._seen(t, 1)):
            rows, pixels = len(seen[0]), len(columns)
            taps, most = rows * sum(map(len, columns)), rows * max(map(len, columns))
            elements = rows * len({place for line in columns for place in line})
            for part in t.parts:
                yield down * across * part.count, OuterBlock(t, pixels, part.vectors, taps, most, elements)

    def _seen(self, t: OuterTiles, axis: int) -> list[tuple[tuple[Lines, ...], int]]:
        """Of each part of an axis what a tile sees of windows, and how many tiles there are."""
        along = (t.down, t.across)[axis]
        whole = tuple((at,) for at in range(along.size))
        return [
            (
                whole if self.kind == "copied" else lines_of(self.geometry, axis, along.start(part), along.tile(part)),
                along.iterations(part),
            )
            for part in range(len(along.parts))
        ]


def float_conv2d(geometry: Geometry, channels: int, clamped: bool, constants: Mapping[str, np.ndarray]) -> FloatProduct:
    """The sketch of a CONV2D, whose windows are copied first where they are many to write out."""
    axes = [axis_of(geometry, axis, 1, by_tile=False) for axis in (0, 1)]
    regions = math.prod(len(along.parts) for along in axes)
    seen = [
        lines_of(geometry, axis, along.start(part), 1)
        for axis, along in enumerate(axes)
        for part in range(len(along.parts))
    ]
    many = regions * math.prod(geometry.kernel) > _FEW
    odd = channels == 1 or (channels % LANES > 0 and channels > _MOST_SUMS * LANES)
    copied = many or (regions > 1 and odd) or ((),) in seen
    return FloatProduct(geometry, channels, clamped, "copied" if copied else "conv2d", constants)
