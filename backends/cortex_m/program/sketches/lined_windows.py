"""What the numbers of a schedule of windows with channels in lanes say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tosaic.backends.cortex_m.program.sketches.image_strips import ImageStrip
from tosaic.backends.cortex_m.program.sketches.row_numbers import RowResult
from tosaic.backends.cortex_m.program.sketches.tiles import ImageTiles, TiledAxis, TileRegion

FORMS = {
    "rounded": ("nearest", ("bias", "whole")),
    "doubled": ("doubled", ("bias", "multiplier", "down")),
    "shifted": ("shifted", ("bias", "left", "multiplier", "rest")),
}
"""Of each form of a RESCALE the identity, and the constants of a channel in the order of their use."""


_BOUNDS = {"": (), "both": ("max", "min"), "floor": ("max",), "ceiling": ("min",)}
"""What is done to results, by the bounds that they have."""


@dataclass(frozen=True)
class HalfResults:
    """Results of 16 bits, of sums of 32.

    Args:
        form: of the RESCALE: `rounded` where every shift can be 31, `doubled` where none is below 32, else `shifted`.
        bounds: `both`, a `floor` or a `ceiling`; empty for none.
    """

    form: str
    bounds: str

    @property
    def factors(self) -> Sequence[str]:
        """The constants of a channel."""
        return FORMS[self.form][1]


@dataclass(frozen=True)
class FloatResults:
    """Sums of floats, which begin with the bias.

    Args:
        clamped: whether they have bounds.
    """

    clamped: bool
    factors: ClassVar[Sequence[str]] = ("bias",)


@dataclass(frozen=True)
class LinedWindows:
    """The numbers of a schedule.

    Args:
        channels: of the image.
        kernel: rows and columns of a window.
        count: lanes of a vector in the epilogue: eight, even and odd ones in registers of their own, or four.
        padded: whether windows reach beyond rows, and beyond columns.
        once: whether each of the `weights` is read once, or each element of the `image` as well.
        copied: whether weights are copied to scratch memory.
        ahead: loads that run an iteration ahead.
        strip: of the padded image, from which bytes are read; None where the image is read.
    """

    channels: int
    kernel: tuple[int, int]
    count: int
    result: HalfResults | RowResult | FloatResults
    down: TiledAxis
    across: TiledAxis
    padded: tuple[bool, bool]
    hardware_loop: str
    once: str
    copied: bool
    ahead: int
    strip: ImageStrip | None = None

    @property
    def image(self) -> str:
        """The buffer that windows are read from."""
        return "P" if self.strip is not None and self.strip.padded else "a"

    @property
    def halves(self) -> bool:
        """Whether lanes are halves while they are multiplied."""
        return self.count == 8

    @property
    def dtype(self) -> str:
        """Of lanes while they are multiplied."""
        return "f32" if isinstance(self.result, FloatResults) else "i16" if self.halves else "i32"

    @property
    def element(self) -> str:
        """Of results."""
        return self.result.element if isinstance(self.result, RowResult) else self.dtype

    @property
    def isa(self) -> str:
        """The instructions of a schedule."""
        return "mve_fp" if isinstance(self.result, FloatResults) else "mve"

    @property
    def bounds(self) -> Mapping[str, str]:
        """The constants that are bounds, by what they do."""
        if isinstance(self.result, FloatResults):
            return {"at_least": "low", "at_most": "upper"} if self.result.clamped else {}
        if isinstance(self.result, RowResult):
            return dict(zip(("max", "min"), self.result.bounds, strict=False))
        names = {"max": "least_half", "min": "most_half"}
        return {op: names[op] for op in _BOUNDS[self.result.bounds]}

    @property
    def lanes(self) -> int:
        """Channels of a vector."""
        return min(self.count, self.channels)

    @property
    def parts(self) -> list[ChannelPart]:
        """Whole vectors of channels, and those that are left."""
        iterations, rest = divmod(self.channels, self.lanes)
        found = [ChannelPart(self, ImageTiles(self.down, self.across, self.hardware_loop), "", iterations)]
        if rest:
            found.append(ChannelPart(self, ImageTiles(self.down, self.across, "x", "yc", "xb", "n_e"), "_e", 1))
        return found


@dataclass(frozen=True)
class ChannelPart:
    """Some channels.

    Args:
        behind: what names of its constants end in.
        iterations: vectors of them.
    """

    what: LinedWindows
    tiles: ImageTiles
    behind: str
    iterations: int

    @property
    def alone(self) -> bool:
        """Whether all of its image has the same code."""
        return len(self.tiles.down.parts) * len(self.tiles.across.parts) == 1

    def sums(self, region: TileRegion) -> str:
        """What names of loops and buffers of a region's sums end in."""
        return self.behind + (f"_{region.name}" if not self.alone else "")
