"""What sketches of pools have in common: channels in lanes, and what becomes of sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_LATE = ("offset_half", "begun", "begun_half")
"""Constants that are read elsewhere than all others."""


@dataclass(frozen=True)
class PoolAverage:
    """How a sum becomes a result.

    Args:
        rules: of the RESCALE, in their order.
        factors: the constants that its value reads then; `places` are those of them that the place tells.
        zero: whether a zero point is added.
        centered: whether sums less their offset fit their lanes.
        begun: whether sums begin with their offset less.
        result: the type of a result.
    """

    rules: tuple[str, ...]
    factors: tuple[str, ...]
    places: tuple[str, ...]
    zero: bool
    centered: bool
    begun: bool
    result: str

    @property
    def changes_first(self) -> bool:
        """Whether the first operation changes its vector, of which there must be a copy."""
        return "offset" not in self.factors and ("less" in self.factors or "left" in self.factors)


@dataclass(frozen=True)
class ChannelLanes:
    """Channels in lanes.

    Args:
        dtype: of a lane while elements are reduced.
        count: lanes of a vector.
        channels: of the image.
        vectors: of channels in an iteration.
        average: how sums become results; None of greatest numbers.
    """

    dtype: str
    count: int
    channels: int
    vectors: int
    average: PoolAverage | None

    @property
    def together(self) -> int:
        """Channels of an iteration."""
        return min(self.count * self.vectors, self.channels)

    @property
    def iterations(self) -> int:
        """Of the loop over channels; the last may start early."""
        return -(-self.channels // self.together)

    @property
    def early(self) -> bool:
        """Whether it does."""
        return self.channels % self.together > 0


def begun(lanes: ChannelLanes, *, alone: bool = False) -> Iterator[str]:
    """The steps on values, and on channels, that all parts share; `alone`, vectors have a loop even if there is one."""
    average = lanes.average
    if average is not None:
        yield from (f"rewrite(out, {rule})" for rule in average.rules)
        if average.begun:
            yield "begin(S)"
    if lanes.dtype != "i32":
        yield f"narrow(S, {lanes.dtype})"
    if average is not None:
        shared = (factor for factor in average.factors if factor not in average.places)
        yield from (f"stage({factor}, b, {factor}_g, r)" for factor in shared if factor not in _LATE)
    inner = "nv" if lanes.vectors > 1 or alone else "nl"
    yield f"split(n, {inner}, {lanes.together}{', early' * lanes.early})"
    if inner == "nv":
        yield f"split(nv, nl, {min(lanes.count, lanes.channels)})"


def lengthened(lanes: ChannelLanes, sums: str) -> Iterator[str]:
    """Few channels leave lanes of a vector that nothing uses."""
    if lanes.channels < lanes.count:
        yield f"lengthen({sums}, 3, {lanes.count})"


def epilogue(
    lanes: ChannelLanes, placed: str, around: str, inner: str, outer: str, region: str, *, uniform: bool = True
) -> Iterator[str]:
    """The steps that let vectors of sums become results.

    Args:
        placed: the step that brings sums to vectors.
        around, inner: the loop over vectors of results, and that over one.
        outer: that around all of the region.
        uniform: whether constants are one number in a region; else in each iteration of `outer`.
    """
    average = lanes.average
    if average is None:
        yield placed
        return
    for factor in average.places:
        if factor != "offset_half":
            yield from _number(factor, outer, region, uniform=uniform)
    if lanes.dtype == "i16":
        yield from in_halves(average, around, region)
        if average.centered:
            yield from _number("offset_half", outer, region, uniform=uniform) if average.places else _shared_offset()
        yield placed
        return
    if average.result == "i16":
        yield from (f"part(out, sat16, {around}, F{region}, scratch, i16)", f"space(F{region}, 2)")
        if lanes.channels < lanes.count:
            yield f"lengthen(F{region}, 0, {2 * lanes.count})"
        yield f"place(F{region}, q)"
        inner = f"F{region}0"
    steps = [placed, f"unfold({inner}, v{region}, q)"]
    yield from reversed(steps) if average.changes_first else steps


def _number(factor: str, outer: str, region: str, *, uniform: bool) -> Iterator[str]:
    """A constant that the place tells, in a register."""
    own = f"{factor}_{region}" if region else factor
    if uniform:
        yield f"uniform({factor}, {outer}, {own})"
    yield f"stage({own if uniform else factor}, {outer}, {own}_g, r)"


def in_halves(average: PoolAverage, around: str, region: str) -> Iterator[str]:
    """Eight sums of sixteen bits: even and odd ones are scaled in vectors of their own."""
    made = "out"
    if average.result == "i8":
        yield f"part(out, sat8, {around}, B{region}, scratch, i8)"
        yield from (f"space(B{region}, 2)", f"place(B{region}, q)")
        made = f"B{region}"
        if average.zero:
            yield f"part({made}, sat16, {around}, F{region}, q, i16)"
            made = f"F{region}"
    yield f"part({made}, sat16, {around}, E{region}, q, i16)"
    if average.centered:
        yield from (f"part(E{region}, sub, {around}, D{region}, scratch, i32)", f"narrow(D{region}, i16)")
        yield f"place(D{region}, q)"
    yield from (f"split(E{region}0, E{region}h, 2)", f"reorder(E{region}0, E{region}h)")
    yield from (f"unfold(E{region}0, v{region}, q)", f"write_out(E{region}h)")


def _shared_offset() -> Iterator[str]:
    yield "stage(offset_half, b, offset_half_g, r)"
