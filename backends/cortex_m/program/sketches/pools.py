"""Sketches of pools for cores with vectors: schedules of `algorithms.pool` with channels in lanes.

`tiled` writes the windows of a tile of results out, which share what they have in common, while a hardware loop goes
over channels or over columns. Where windows reach beyond the image, parts of it have code of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.lanes import ChannelLanes, begun, finished, lengthened

_LETTERS = {"y": "u", "x": "v"}


@dataclass(frozen=True)
class TiledAxis:
    """Rows, or columns, of results in tiles.

    Args:
        size: results of a tile.
        parts: how many results, or tiles, have code of their own, one after the other.
        tiles: whether parts are of whole tiles.
        count: results in all.
    """

    size: int
    parts: tuple[int, ...]
    tiles: bool
    count: int

    def split(self, loop: str, suffix: str) -> Iterator[str]:
        """The steps that make parts of a loop, and tiles."""
        if self.tiles:
            yield from self._tiled(loop, suffix, self.count)
        name = f"{loop}{suffix}"
        for number, first in enumerate(self.parts[:-1], 1):
            yield f"cut({name}, {first}, {_LETTERS[loop]}{number})"
            name = f"{name}_{_LETTERS[loop]}{number}"
        if not self.tiles:
            for number, extent in enumerate(self.parts):
                yield from self._tiled(loop, suffix + self.named(loop, number), extent)

    def _tiled(self, loop: str, suffix: str, extent: int) -> Iterator[str]:
        if (size := min(self.size, extent)) > 1:
            yield f"split({loop}{suffix}, {loop}i{suffix}, {size}{', early' * (extent % size > 0)})"

    def named(self, loop: str, part: int) -> str:
        """How names of a part end."""
        return "".join(f"_{_LETTERS[loop]}{number}" for number in range(1, part + 1))

    def tile(self, part: int) -> int:
        """Results of a tile of a part."""
        return self.size if self.tiles else min(self.size, self.parts[part])

    def turns(self, part: int) -> int:
        """Tiles of a part."""
        return self.parts[part] if self.tiles else -(-self.parts[part] // self.size)

    def early(self, part: int) -> bool:
        """Whether the last tile of a part starts early."""
        if self.tiles:
            return part == len(self.parts) - 1 and self.count % self.size > 0
        return self.parts[part] % self.tile(part) > 0


@dataclass(frozen=True)
class TiledWindows:
    """The numbers of a schedule whose windows are written out.

    Args:
        turned: `n` or `x`, the loop of the core.
        ahead: loads that run a turn ahead.
    """

    lanes: ChannelLanes
    down: TiledAxis
    across: TiledAxis
    turned: str
    ahead: int


def tiled(t: TiledWindows) -> Iterator[str]:
    """The steps of a schedule whose windows are written out.

    What makes trees large comes last.
    """
    yield from begun(t.lanes)
    yield from t.down.split("y", "")
    shared, loops, hoisted = list[str](), list[str](), list[str]()
    regions = itertools.count()
    alone = len(t.down.parts) * len(t.across.parts) == 1
    for down in range(len(t.down.parts)):
        rows = t.down.named("y", down)
        if t.down.tile(down) > 1:
            yield f"reorder(yi{rows}, x{rows})"
        yield from t.across.split("x", rows)
        for across in range(len(t.across.parts)):
            region = "" if alone else f"r{next(regions)}"
            names = rows + t.across.named("x", across)
            yield from _region(t, names, region, down, across)
            shared.append(f"share({f'S_{region}' if region else 'S'}, T{region})")
            turns, early = t.lanes.turns, t.lanes.early
            if t.turned == "x":
                turns, early = t.across.turns(across), t.across.early(across)
            loops += _turned(f"{t.turned}{names}", turns, early)
            if t.ahead and turns - early > 1:
                hoisted.append(f"hoist({t.turned}{names}, {t.ahead})")
    yield from (*shared, *loops, *hoisted)


def _region(t: TiledWindows, names: str, region: str, down: int, across: int) -> Iterator[str]:
    """The steps of one part of the image, whose loops' names end in `names`; those of its buffers in `region`."""
    lanes = t.lanes
    tile = [loop for loop, axis, part in (("xi", t.across, across), ("yi", t.down, down)) if axis.tile(part) > 1]
    if len(tile) == 2:
        yield f"reorder(xi{names}, yi{names})"
    for loop, outer in itertools.product(("n", *["nv"] * (lanes.vectors > 1)), tile):
        yield f"reorder({outer}{names}, {loop}{names})"
    if t.turned == "x":
        yield f"reorder(x{names}, n{names})"
    turn = f"nv{names}" if lanes.vectors > 1 else f"{t.turned}{names}"
    yield f"compute_at(S, {turn}{f', {region}' * bool(region)})"
    sums = f"S_{region}" if region else "S"
    around = f"{tile[0]}{names}" if tile else turn
    outer = f"{'n' if t.turned == 'x' else 'x'}{names}"
    yield from lengthened(lanes, sums)
    yield from finished(lanes, f"place({sums}, q)", around, f"nl{names}", outer, region)


def _turned(loop: str, turns: int, early: bool) -> Iterator[str]:
    """The steps that make a loop one of the core; a last turn that starts early stands behind it."""
    if early and turns > 1:
        yield f"cut({loop}, {turns - 1}, e)"
        yield from (f"select({loop}_e, mve)", f"block({loop}_e)")
        turns -= 1
    yield from (f"select({loop}, mve)", f"{'hardware_loop' if turns > 1 else 'block'}({loop})")
