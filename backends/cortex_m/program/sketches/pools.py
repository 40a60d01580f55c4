"""Sketches of pools for cores with vectors: schedules of `windows.pool` with channels in lanes.

`tiled` writes out the windows of a tile of results, which share what they have in common. A hardware loop goes over
channels or over columns. Where windows reach beyond the image, parts of it have code of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.lanes import ChannelLanes, begun, epilogue, lengthened
from tosaic.backends.cortex_m.program.sketches.tiles import ImageTiles, TileRegion, hardware_loop


@dataclass(frozen=True)
class TiledWindows:
    """The numbers of a schedule whose windows are written out.

    Args:
        ahead: loads that run an iteration ahead.
    """

    lanes: ChannelLanes
    tiles: ImageTiles
    ahead: int


def tiled(t: TiledWindows) -> Iterator[str]:
    """The steps of a schedule whose windows are written out.

    What makes trees large comes last.
    """
    yield from begun(t.lanes)
    yield from t.tiles.split()
    alone = len(t.tiles.down.parts) * len(t.tiles.across.parts) == 1
    regions = t.tiles.regions(None if alone else itertools.count())
    for region in regions:
        yield from _region(t, region)
    for region in regions:
        yield f"share({f'S_{region.name}' if region.name else 'S'}, T{region.name})"
    iterations = [region.iterations((t.lanes.iterations, t.lanes.early)) for region in regions]
    for region, each in zip(regions, iterations, strict=True):
        yield from hardware_loop(region.hardware_loop, *each)
    for region, (count, early) in zip(regions, iterations, strict=True):
        if t.ahead and count - early > 1:
            yield f"hoist({region.hardware_loop}, {t.ahead})"


def _region(t: TiledWindows, region: TileRegion) -> Iterator[str]:
    """The steps of one part of the image."""
    lanes, names = t.lanes, region.names
    vectors = ["nv"] * (lanes.vectors > 1)
    yield from region.inwards(*vectors)
    iteration = f"nv{names}" if vectors else region.hardware_loop
    yield f"compute_at(S, {iteration}{f', {region.name}' * bool(region.name)})"
    sums = f"S_{region.name}" if region.name else "S"
    around = region.tile[0] if region.tile else iteration
    yield from lengthened(lanes, sums)
    yield from epilogue(lanes, f"place({sums}, q)", around, f"nl{names}", region.outer, region.name)
