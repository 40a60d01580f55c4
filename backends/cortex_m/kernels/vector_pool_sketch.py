"""MAX_POOL2D and AVG_POOL2D on cores with vectors, with the numbers that their schedules leave open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.pool_sketch import PoolProgram
from tosaic.backends.cortex_m.kernels.sketch_constants import scale_of_sums
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.cortex_m.program.kernel import Knobs, Sketched
from tosaic.backends.cortex_m.program.sharing import Lines, shared_reductions
from tosaic.backends.cortex_m.program.sketches.lanes import ChannelLanes, PoolAverage
from tosaic.backends.cortex_m.program.sketches.pool_walks import SteppedWindow, WalkedWindow, stepped, walked
from tosaic.backends.cortex_m.program.sketches.pools import TiledWindows, tiled
from tosaic.backends.cortex_m.program.sketches.tiles import ImageTiles, TiledAxis, axis_of, lines_of
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_HALF_WINDOW = 255
"""Sums of so many bytes fit into 16 bits."""
_MOST_RESULTS, _MOST_ELEMENTS, _MOST_PARTS = 12, 1000, 25
_MOST_CODE = 1200
_AHEAD = (2, 0, 1, 3, 4)
_BLOCK, _BESIDE = 14, 0.03
"""Cycles around a block; the share that a choice costs which is not guessed at."""


class _VectorPool(PoolProgram):
    """A pool with channels in lanes."""

    @cached_property
    def dtype(self) -> str:
        """Of a lane while elements are reduced."""
        if not self.average:
            return self.dtypes[0]
        narrow = self.dtypes[0] == "i8" and self.taps <= _HALF_WINDOW
        return "i16" if narrow and self.geometry.channels >= REGISTERS["q"] // BYTES["i16"] else "i32"

    @property
    def count(self) -> int:
        """Lanes of a vector."""
        return REGISTERS["q"] // BYTES[self.dtype]

    def lanes(self, vectors: int) -> ChannelLanes:
        """Channels of so many vectors in an iteration."""
        if vectors > 1 and vectors * self.count > self.geometry.channels:
            raise RefusedError(f"{self.geometry.channels} channels have no iterations of {vectors * self.count}")
        return ChannelLanes(self.dtype, self.count, self.geometry.channels, vectors, self.averaged)

    @cached_property
    def averaged(self) -> PoolAverage | None:
        """How sums become results; None of greatest numbers."""
        return self._averaged

    @cached_property
    def _averaged(self) -> PoolAverage | None:
        if not self.average:
            return None
        shift, multiplier, offset, zero = (
            np.asarray(self.constants[name], np.int64) for name in ("shift", "multiplier", "offset", "zero")
        )
        rules, factors = list[str](), list[str]()
        if offset.any():
            factors.append("offset")
        else:
            rules.append("nothing_taken")
        rule, scale = scale_of_sums(multiplier, shift)
        rules.append(rule)
        factors += scale
        halves, narrow, result = self.dtype == "i16", bool(zero.any()), self.dtypes[1]
        if not narrow:
            rules.insert(0, "nothing_added")
        elif result == "i16":
            raise RefusedError("16 bits have no zero point")
        else:
            factors.append("zero_half" if halves else "zero")
        if result == "i8":
            rules.append("lanes" if not halves else "narrow" if narrow else "halves")
        centered = (
            halves and bool(offset.any()) and DERIVED["half"](offset, -128 * self.taps, 127 * self.taps) is not None
        )
        if centered:
            factors[0] = "offset_half"
        places = [name for name in factors if not name.startswith("zero")] if self.by_place else []
        return PoolAverage(tuple(rules), tuple(factors), tuple(places), narrow, centered, False, result)

    def _vectors(self) -> tuple[int, ...]:
        return tuple(n for n in range(1, 7) if n == 1 or n * self.count <= self.geometry.channels)

    def _epilogue(self) -> tuple[int, int]:
        """Instructions of a vector's epilogue, and those of them that the pipe of integers holds."""
        average = self._averaged
        if average is None:
            return 1, 0
        halves = 2 if self.dtype == "i16" else 1
        each = len(average.factors) - average.zero - average.centered + 1
        integers = (
            halves * (each + (halves == 2) - ("multiplier" in average.factors)) + 2 + average.zero + average.centered
        )
        return integers + halves * ("multiplier" in average.factors) + 1, integers


class TiledPool(_VectorPool):
    """Windows that are written out; see `sketches.pools.tiled`."""

    compared: ClassVar[int] = 4

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `hardware_loop`, the loop that is one, over `channels` or over `columns`;
        `vectors` of channels in an iteration, `rows` and `columns` of results in a tile; `ahead`, loads that run an
        iteration ahead."""
        g = self.geometry
        return {
            "hardware_loop": ("channels", "columns"),
            "vectors": self._vectors(),
            "rows": tuple(range(1, min(4, g.rows) + 1)),
            "columns": tuple(range(1, min(6, g.columns) + 1)),
            "ahead": _AHEAD,
        }

    def tiled(self, knobs: Knobs) -> TiledWindows:
        lanes = self.lanes(int(knobs["vectors"]))
        down, across = (
            axis_of(self.geometry, axis, int(knobs[name]), by_tile=not self.average)
            for axis, name in enumerate(("rows", "columns"))
        )
        results = down.size * across.size * lanes.vectors
        if results > _MOST_RESULTS or results * self.taps > _MOST_ELEMENTS:
            raise RefusedError(f"{results} windows of {self.taps} are too much to write out")
        for axis, name in ((down, "rows"), (across, "columns")):
            if axis.size > 1 and not axis.tiles and all(axis.size > part for part in axis.parts):
                raise RefusedError(f"no part of an image has {axis.size} {name}")
        if len(down.parts) * len(across.parts) > _MOST_PARTS:
            raise RefusedError(f"{len(down.parts)} x {len(across.parts)} parts of an image are too many")
        hardware_loop = "n" if knobs["hardware_loop"] == "channels" else "x"
        if hardware_loop == "x" and not any(across.iterations(part) > 1 for part in range(len(across.parts))):
            raise RefusedError("columns have no iterations")
        if hardware_loop == "n" and lanes.iterations - lanes.early < 2 and knobs["ahead"]:
            raise RefusedError("channels have no iterations to run ahead of")
        return TiledWindows(lanes, ImageTiles(down, across, hardware_loop), int(knobs["ahead"]))

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return tiled(self.tiled(knobs))

    def cost(self, knobs: Knobs) -> float:
        t = self.tiled(knobs)
        tiles = t.tiles
        cycles = _cycles(self, t.lanes.vectors, tiles.down.size, tiles.across.size, str(knobs["hardware_loop"]))
        return cycles * (1 + _AHEAD.index(t.ahead) * _BESIDE)

    def cycles(self, t: TiledWindows) -> float:
        """About those of a schedule, as far as the pipes tell."""
        epilogue, integers = self._epilogue()
        cycles, code = 0.0, 0
        down, across = (list(self._tiles(axis, each)) for axis, each in enumerate((t.tiles.down, t.tiles.across)))
        for (rows, some, _), (columns, others, last) in itertools.product(down, across):
            reductions = shared_reductions(rows, columns)
            loads, results = sum(each.halves is None for each in reductions), len(rows) * len(columns)
            issued = len(reductions) + results * epilogue
            code += issued * t.lanes.vectors
            iteration = (
                max(2 * (loads + results), 2 * (len(reductions) - loads + results * integers), issued) * t.lanes.vectors
            )
            outer, iterations, tail = some * others, t.lanes.iterations, t.lanes.early
            if t.tiles.hardware_loop == "x":
                outer, iterations, tail = some * t.lanes.iterations, others, last
            cycles += outer * (_BLOCK * (1 + (tail and iterations > 1)) + iterations * (iteration + 1))
        if code > _MOST_CODE:
            raise RefusedError(f"{code} instructions are too many")
        return self.geometry.batch * cycles

    def _tiles(self, axis: int, each: TiledAxis) -> Iterator[tuple[tuple[Lines, ...], int, bool]]:
        """Of each part what a tile sees, how many there are, and whether the last starts early."""
        for part in range(len(each.parts)):
            lines = lines_of(self.geometry, axis, each.start(part), each.tile(part))
            yield lines, each.iterations(part), each.early(part)


@lru_cache(maxsize=4096)
def _cycles(what: TiledPool, vectors: int, rows: int, columns: int, hardware_loop: str) -> float:
    knobs: Knobs = {"vectors": vectors, "rows": rows, "columns": columns, "hardware_loop": hardware_loop, "ahead": 0}
    return what.cycles(what.tiled(knobs))


class WalkedPool(_VectorPool):
    """The hardware loop goes over a window; see `sketches.pools.walked`."""

    @cached_property
    def averaged(self) -> PoolAverage | None:
        """Sums begin with their offset less where they fit their lanes then."""
        found = self._averaged
        if found is None or "offset" not in found.factors[0] or (self.dtype == "i16" and not found.centered):
            return found
        begun = f"begun{'_half' * found.centered}"
        return replace(found, factors=(begun, *found.factors[1:]), centered=False, begun=True)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `vectors` of channels in an iteration, and `ahead`, loads that run an iteration
        ahead."""
        return {"vectors": self._vectors(), "ahead": _AHEAD}

    def _walked(self, knobs: Knobs) -> WalkedWindow:
        g = self.geometry
        if any(g.pad):
            raise RefusedError("windows reach beyond the image")
        w = WalkedWindow(self.lanes(int(knobs["vectors"])), g.kernel, g.kernel[1] == g.width, int(knobs["ahead"]))
        if w.iterations < 2:
            raise RefusedError("a window of one element is no loop")
        return w

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return walked(self._walked(knobs))

    def cost(self, knobs: Knobs) -> float:
        w, g = self._walked(knobs), self.geometry
        epilogue, _ = self._epilogue()
        each = w.lanes.vectors * (2 * self.taps + 3 * epilogue) + _BLOCK + w.iterations
        return g.batch * g.rows * g.columns * w.lanes.iterations * each * (1 + _AHEAD.index(w.ahead) * _BESIDE)


class SteppedPool(_VectorPool):
    """A row of a window at a time; see `sketches.pools.stepped`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The number that is open: `vectors` of channels in an iteration."""
        return {"vectors": self._vectors()}

    def _stepped(self, knobs: Knobs) -> SteppedWindow:
        g = self.geometry
        if not any(g.pad):
            raise RefusedError("no window reaches beyond the image")
        padded = (any(g.pad[:2]), any(g.pad[2:]))
        return SteppedWindow(self.lanes(int(knobs["vectors"])), g.kernel, axis_of(g, 1, 1, by_tile=False), padded)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return stepped(self._stepped(knobs))

    def cost(self, knobs: Knobs) -> float:
        s, g = self._stepped(knobs), self.geometry
        row = s.lanes.vectors * (4 + 2 * g.kernel[1]) + _BLOCK
        return g.batch * g.rows * g.columns * s.lanes.iterations * (g.kernel[0] * row + 40)


def vector_pools(
    geometry: Geometry, dtypes: tuple[str, str], average: bool, by_place: bool, constants: Mapping[str, np.ndarray]
) -> Mapping[str, Sketched]:
    """The sketches, by the name of the variant."""
    what = geometry, dtypes, average, by_place, constants
    return {"tiled": TiledPool(*what), "walked": WalkedPool(*what), "stepped": SteppedPool(*what)}
