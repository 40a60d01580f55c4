"""DEPTHWISE_CONV2D with the numbers that its schedules on cores with vectors leave open."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import rescale_form
from tosaic.backends.cortex_m.program import floats, windows
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.channels import lined
from tosaic.backends.cortex_m.program.sketches.image_strips import ImageStrip
from tosaic.backends.cortex_m.program.sketches.lined_windows import FloatResults, HalfResults, LinedWindows
from tosaic.backends.cortex_m.program.sketches.row_numbers import RowResult
from tosaic.backends.cortex_m.program.sketches.tiles import TiledAxis, axis_of, lines_of
from tosaic.backends.cortex_m.program.strips import row_elements
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_AHEAD = (2, 0, 1, 3, 4)
_MOST_VECTORS, _MOST_PRODUCTS, _MOST_CODE = 8, 200, 5000
_LONG = 1500
"""Instructions of all tiles, of which no loads run ahead: last iterations would have code of their own."""
_VECTOR = 16
"""Bytes of a vector."""
_BLOCK, _BESIDE = 16, 0.02
"""Cycles around a block; the share that a choice costs which is not guessed at."""


@dataclass(frozen=True)
class _LinedSketch(ABC):
    """DEPTHWISE_CONV2D, a result a channel; see `sketches.channels`."""

    geometry: Geometry

    @property
    @abstractmethod
    def result(self) -> HalfResults | RowResult | FloatResults:
        """How sums become results."""

    def strip(self, tall: int) -> ImageStrip | None:
        """That of so many rows of results; None where windows are read from the image."""
        return None

    @property
    @abstractmethod
    def count(self) -> int:
        """Lanes of a vector in the epilogue."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `hardware_loop`, the loop that is one, over `channels` or over `columns`; `rows`
        and `columns` of results in a tile; `edges`, whether results whose windows reach beyond the image are in tiles
        of their own, or of `whole` size; `once`, what is read once in a tile: `weights`, or elements of the `image`,
        too; `weights`, where they are read; `ahead`, loads that run an iteration ahead."""
        g = self.geometry
        return {
            "hardware_loop": ("channels", "columns"),
            "rows": tuple(range(1, min(4, g.rows) + 1)),
            "columns": tuple(range(1, min(6, g.columns) + 1)),
            "edges": ("apart", "whole"),
            "once": ("weights", "image"),
            "weights": ("params", "scratch"),
            "ahead": _AHEAD,
        }

    def lined(self, knobs: Knobs) -> LinedWindows:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        g, rows, columns = self.geometry, int(knobs["rows"]), int(knobs["columns"])
        results, taps = rows * columns, math.prod(g.kernel)
        if knobs["weights"] == "scratch" and g.channels // self.count * self.count * taps < _VECTOR:
            raise RefusedError("so few weights are not copied")
        vectors = results * self.count // 4 + self._held(rows, columns, str(knobs["once"]))
        if vectors > _MOST_VECTORS or (results > 1 and results * taps > _MOST_PRODUCTS):
            raise RefusedError(f"{results} windows of {taps} are too much to write out")
        whole = knobs["edges"] == "whole"
        down, across = axis_of(g, 0, rows, by_tile=whole), axis_of(g, 1, columns, by_tile=whole)
        if whole and [down, across] == [axis_of(g, axis, n, by_tile=False) for axis, n in enumerate((rows, columns))]:
            raise RefusedError("no tile reaches beyond the image")
        for axis, name in ((down, "rows"), (across, "columns")):
            if not axis.tiles and axis.size > 1 and all(axis.size > part for part in axis.parts):
                raise RefusedError(f"no part of an image has {axis.size} {name}")
        hardware_loop = "n" if knobs["hardware_loop"] == "channels" else "x"
        if hardware_loop == "x" and not any(across.iterations(part) > 1 for part in range(len(across.parts))):
            raise RefusedError("columns have no iterations")
        t = LinedWindows(
            g.channels,
            g.kernel,
            self.count,
            self.result,
            down,
            across,
            (any(g.pad[:2]), any(g.pad[2:])),
            hardware_loop,
            str(knobs["once"]),
            knobs["weights"] == "scratch",
            int(knobs["ahead"]),
            self.strip(rows),
        )
        if t.ahead and hardware_loop == "n" and t.channels // t.lanes < 2:
            raise RefusedError("channels have no iterations to run ahead of")
        _, code = self._priced(t)
        if code > (_LONG if t.ahead else _MOST_CODE):
            raise RefusedError(f"{code} instructions are too many")
        return t

    def _held(self, rows: int, columns: int, once: str) -> int:
        """Vectors beside sums: of weights at a time, of the image, and of products that nothing adds up at once."""
        if once == "weights":
            return 3
        return (1 if isinstance(self.result, FloatResults) else 2) + _most_held(self.geometry, rows, columns)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return lined(self.lined(knobs))

    def cost(self, knobs: Knobs) -> float:
        t = self.lined(knobs)
        cycles, _ = self._priced(t)
        return cycles * (1 + _AHEAD.index(t.ahead) * _BESIDE + t.copied * _BESIDE / 2)

    def _priced(self, t: LinedWindows) -> tuple[float, int]:
        """About the cycles of a schedule, as far as the pipes tell, and its instructions."""
        g, halves = self.geometry, t.count // 4
        epilogue = len(t.result.factors)
        cycles, code = 0.0, 0
        for (rows, some, _), (columns, others, last) in itertools.product(
            self._tiles(0, t.down), self._tiles(1, t.across)
        ):
            places = [(y, x) for line in rows for y in line for other in columns for x in other]
            results = len(rows) * len(columns)
            loads = len(places) if t.once == "weights" else len(set(places))
            loads += math.prod(g.kernel) + halves * epilogue + results
            floats = isinstance(t.result, FloatResults)
            integers = results * (1 + 2 * len(t.bounds)) if floats else halves * (len(places) + results * epilogue)
            products = halves * len(places) + halves * results * (not floats)
            issued = loads + integers + products
            code += issued
            iteration = max(2 * loads, 2 * integers, 2 * products, issued)
            outer, iterations, tail = some * others, t.channels // t.lanes, False
            if t.hardware_loop == "x":
                outer, iterations, tail = some * iterations, others, last
            cycles += outer * (_BLOCK * (1 + (tail and iterations > 1)) + iterations * (iteration + 1))
            if t.channels % t.lanes:
                cycles += some * others * (iteration + _BLOCK)
        return g.batch * (cycles + (t.strip.cycles if t.strip else 0)), code

    def _tiles(self, axis: int, each: TiledAxis) -> list[tuple[tuple[tuple[int, ...], ...], int, bool]]:
        """Of each part what a tile sees, how many there are, and whether the last starts early."""
        return [
            (lines_of(self.geometry, axis, each.start(part), each.tile(part)), each.iterations(part), each.early(part))
            for part in range(len(each.parts))
        ]


@dataclass(frozen=True)
class VectorDepthwise(_LinedSketch):
    """Of int16."""

    epilogue: Epilogue
    form: str
    bounds: str
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def result(self) -> HalfResults:
        return HalfResults(self.form, self.bounds)

    @property
    def count(self) -> int:
        return 8 if self.geometry.channels >= 8 else 4

    def program(self) -> Program:
        return windows.depthwise(self.geometry, self.epilogue, "i16")


@dataclass(frozen=True)
class ByteDepthwise(_LinedSketch):
    """Of bytes, read from strips of the padded image.

    Args:
        image: the layer; `geometry` is that of its padded image.
    """

    image: Geometry
    epilogue: Epilogue
    form: str
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def result(self) -> RowResult:
        return RowResult(self.form, self.epilogue.element, self.epilogue.clamped, self.epilogue.table)

    @property
    def count(self) -> int:
        return 4

    def strip(self, tall: int) -> ImageStrip:
        g, parts = self.image, row_elements(self.image)
        height = (tall - 1) * g.stride[0] + g.span[0]
        return ImageStrip(g.rows, tall, height, sum(parts), g.kernel, *parts, any(g.pad[:2]), short=False)

    def program(self) -> Program:
        return windows.padded_depthwise(self.image, self.epilogue)


@dataclass(frozen=True)
class FloatDepthwise(_LinedSketch):
    """Of floats."""

    clamped: bool
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def result(self) -> FloatResults:
        return FloatResults(self.clamped)

    @property
    def count(self) -> int:
        return 4

    def program(self) -> Program:
        return floats.depthwise_f32(self.geometry, self.clamped)


def vector_depthwise(geometry: Geometry, epilogue: Epilogue, constants: Mapping[str, np.ndarray]) -> VectorDepthwise:
    """The sketch of a layer."""
    multiplier, shift, low, upper = (
        constants[name].astype(np.int64) for name in ("multiplier", "shift", "low", "upper")
    )
    form = "shifted" if DERIVED["down"](shift) is None else "doubled"
    if DERIVED["whole"](multiplier, shift) is not None:
        form = "rounded"
    bounds = ""
    if epilogue.clamped:
        bounds = "both"
        if DERIVED["nothing_above"](upper) is not None:
            bounds = "floor"
        elif DERIVED["nothing_below"](low) is not None:
            bounds = "ceiling"
    return VectorDepthwise(geometry, epilogue, form, bounds, constants)


def byte_depthwise(geometry: Geometry, epilogue: Epilogue, constants: Mapping[str, np.ndarray]) -> ByteDepthwise:
    """The sketch of a layer of bytes, a result a channel."""
    height, width = (
        (n - 1) * s + e
        for n, s, e in zip((geometry.rows, geometry.columns), geometry.stride, geometry.span, strict=True)
    )
    padded = replace(geometry, height=height, width=width, pad=(0, 0, 0, 0))
    weights = constants["w"].reshape(-1, *geometry.kernel).transpose(1, 2, 0)
    return ByteDepthwise(padded, geometry, epilogue, rescale_form(constants), {**constants, "w": weights})


@lru_cache(maxsize=256)
def _most_held(g: Geometry, rows: int, columns: int) -> int:
    """Weights that wait at a time, where a tile of results goes through its part of the image once."""
    places = sorted(
        ((y * g.stride[0] + ky * g.dilation[0], x * g.stride[1] + kx * g.dilation[1]), (ky, kx))
        for y, x, ky, kx in itertools.product(range(rows), range(columns), *map(range, g.kernel))
    )
    found = dict[tuple[int, int], tuple[int, int]]()
    for number, (_, tap) in enumerate(places):
        found[tap] = found.get(tap, (number, 0))[0], number
    return max(sum(first <= at <= last for first, last in found.values()) for at in range(len(places)))
