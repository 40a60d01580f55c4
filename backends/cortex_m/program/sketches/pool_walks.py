"""Sketches of pools with large windows, for cores with vectors.

`walked` lets the hardware loop go over a window; `stepped` reduces a row of a window at a time to sums in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.lanes import ChannelLanes, begun, epilogue, lengthened
from tosaic.backends.cortex_m.program.sketches.tiles import TiledAxis


@dataclass(frozen=True)
class WalkedWindow:
    """The numbers of a schedule whose hardware loop goes over a window.

    Args:
        kernel: rows and columns of a window.
        fused: whether rows of a window lie side by side.
        ahead: loads that run an iteration ahead.
    """

    lanes: ChannelLanes
    kernel: tuple[int, int]
    fused: bool
    ahead: int

    @property
    def hardware_loop(self) -> str:
        """The hardware loop."""
        return "kx" if self.fused or self.kernel[0] == 1 else "ky"

    @property
    def iterations(self) -> int:
        """Of it."""
        tall, wide = self.kernel
        return tall * wide if self.fused or tall == 1 else tall


def walked(w: WalkedWindow) -> Iterator[str]:
    """The steps of a schedule whose hardware loop goes over a window."""
    lanes = w.lanes
    yield from begun(lanes)
    yield "compute_at(S, n)"
    if lanes.average is not None and lanes.average.begun:
        yield f"stage({lanes.average.factors[0]}, b, {lanes.average.factors[0]}_g, r)"
    around = "nv" if lanes.vectors > 1 else "n"
    yield from lengthened(lanes, "S")
    yield from epilogue(lanes, "place(S, q)", around, "nl", "x", "")
    yield from ("distribute(sn)", "reorder(snb, ky)", "reorder(snb, kx)")
    if w.fused and w.kernel[0] > 1:
        yield "fuse(ky, kx)"
    yield f"stage(a, kx, va, q{f', {lanes.dtype}' * (lanes.average is not None)})"
    if lanes.vectors > 1:
        copied = "va0"
        yield from (f"split({loop}, {loop}l, {lanes.count})" for loop in ("sn", "snb", copied))
    yield from ("select(n, mve)", f"hardware_loop({w.hardware_loop})", "block(n)")
    if w.ahead:
        yield f"hoist({w.hardware_loop}, {w.ahead})"


@dataclass(frozen=True)
class SteppedWindow:
    """The numbers of a schedule whose sums lie in memory between the rows of a window.

    Args:
        kernel: rows and columns of a window.
        across: the columns of results, tile by tile of one; each part sees the same columns of a window.
        padded: whether windows reach beyond rows, and beyond columns.
    """

    lanes: ChannelLanes
    kernel: tuple[int, int]
    across: TiledAxis
    padded: tuple[bool, bool]


def stepped(s: SteppedWindow) -> Iterator[str]:
    """The steps of a schedule that reduces a row of a window at a time."""
    yield from begun(s.lanes, alone=True)
    yield from s.across.split("x", "")
    alone = len(s.across.parts) == 1
    for part in range(len(s.across.parts)):
        yield from _stepped(s, s.across.named("x", part), "" if alone else f"r{part}")


def _stepped(s: SteppedWindow, names: str, region: str) -> Iterator[str]:
    lanes, own = s.lanes, f"_{region}" if region else ""
    sums, lane, row, column = (f"{name}{own}" for name in ("S", "sn", "ky", "kx"))
    yield f"compute_at(S, n{names}{f', {region}' * bool(region)})"
    yield from lengthened(lanes, sums)
    iteration = f"nv{names}"
    placed = f"stage({sums}, {iteration}, V{region}, q)"
    yield from epilogue(lanes, placed, iteration, f"nl{names}", f"x{names}", region, uniform=False)
    yield from (f"select({iteration}, mve)", f"block({iteration})")
    yield f"distribute({lane})"
    lane = f"{lane}b"
    for loop, padded in zip((row, column), s.padded, strict=True):
        yield f"reorder({lane}, {loop})"
        if padded:
            yield f"distribute({lane})"
    if lanes.vectors > 1:
        yield f"split({lane}, {lane}l, {lanes.count})"
    if s.kernel[1] > 1:
        yield from (f"split({column}, {column}i, {s.kernel[1]})", f"write_out({column}i)")
    if s.padded[1]:
        yield f"decide({column})"
    yield f"stage(a, {column}, va{region}, q{f', {lanes.dtype}' * (lanes.average is not None)})"
    yield f"stage({sums}, {column}, vs{region}, q)"
    if lanes.vectors > 1:
        yield from (
            f"split({loop}, {loop}l, {lanes.count})" for loop in (f"va{region}1", f"vs{region}0", f"vs{region}0o")
        )
    yield from (f"select({column}, mve)", f"block({column})")
