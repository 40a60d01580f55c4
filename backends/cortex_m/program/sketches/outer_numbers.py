"""The numbers of outer products of floats: tiles of pixels and channels whose sums stay in vectors."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.tiles import TiledAxis

LANES = 4
_COPY, _ELEMENT = 14, 5
"""Cycles around the copy of a run, and of one of its elements alone."""
_BLOCK, _ENTRY, _ITERATION = 18, 6, 1.5
"""Cycles of a block, of its hardware loop, and of each iteration around its instructions."""


@dataclass(frozen=True)
class CopiedWindow:
    """The copy of a window.

    Args:
        columns: of it.
        channels: of the image.
        dense: whether its columns lie side by side in the image.
        padded: whether it reaches beyond columns.
    """

    columns: int
    channels: int
    dense: bool
    padded: bool

    @property
    def run(self) -> int:
        """Elements that are copied together."""
        return self.channels * (self.columns if self.dense else 1)

    @property
    def cycles(self) -> float:
        """About those of the copy of a run."""
        return _COPY + 4 * -(-self.run // LANES) if self.run >= LANES else _COPY + _ELEMENT * self.run


@dataclass(frozen=True)
class OuterTiles:
    """The numbers of a schedule.

    Args:
        channels: of the output.
        depth: channels of the input; elements of a window that is copied.
        kernel: rows and columns of a window that is not.
        padded: whether it reaches beyond rows, and beyond columns.
        vectors: of channels of a block.
        unroll: elements of the depth in an iteration.
        pairs: whether elements are loaded two by two.
        ahead: loads that run an iteration ahead.
        constant: whether the host lays the weights out.
        kept: whether weights of a block are copied to scratch memory for all pixels.
        window: how windows are copied; None where they are read in place.
    """

    channels: int
    depth: int
    kernel: tuple[int, int]
    padded: tuple[bool, bool]
    down: TiledAxis
    across: TiledAxis
    vectors: int
    unroll: int
    pairs: bool
    ahead: int
    clamped: bool
    constant: bool = True
    kept: bool = False
    window: CopiedWindow | None = None

    @property
    def width(self) -> int:
        """Channels of a block."""
        return LANES * self.vectors

    @property
    def several(self) -> bool:
        """Whether parts of the image have code of their own."""
        return len(self.down.parts) * len(self.across.parts) > 1

    @property
    def parts(self) -> list[ChannelBlocks]:
        """Whole blocks of channels, those that are left, and, of weights as they lie, a last vector that begins
        early."""
        early = not self.constant and self.channels > LANES and self.channels % LANES > 0
        blocks, rest = divmod(self.channels // LANES * LANES if early else self.channels, self.width)
        found = [ChannelBlocks(self, "", self.width, blocks)] if blocks else []
        found += [ChannelBlocks(self, "_t" * (blocks > 0), rest, 1)] if rest else []
        return [*found, ChannelBlocks(self, f"{found[-1].behind}_u", LANES, 1)] if early else found


@dataclass(frozen=True)
class ChannelBlocks:
    """Blocks of channels.

    Args:
        behind: what names of its loops end in.
        channels: of a block.
        count: of blocks.
    """

    t: OuterTiles
    behind: str
    channels: int
    count: int

    @property
    def vectors(self) -> int:
        """Of a block; of the last one lanes may be no channels."""
        return -(-self.channels // LANES)

    @property
    def whole(self) -> int:
        """Channels in whole vectors."""
        return self.channels // LANES * LANES

    @property
    def few(self) -> bool:
        """Whether masks keep the channels of a vector from its other lanes: one, or some of weights as they lie."""
        return self.channels == 1 or (not self.t.constant and self.channels < LANES)

    @property
    def weights(self) -> str:
        """What it reads."""
        if self.t.kept:
            return f"wc{self.behind}"
        return f"w{self.behind}" if self.t.constant else "w"


@dataclass(frozen=True)
class OuterBlock:
    """A block of instructions.

    Args:
        pixels, vectors: of its sums.
        taps: elements of windows that an element of the depth multiplies, for all pixels.
        window: those of a pixel.
        elements: those that are loaded.
    """

    t: OuterTiles
    pixels: int
    vectors: int
    taps: int
    window: int
    elements: int

    @property
    def issued(self) -> float:
        """Instructions for an element of the depth."""
        return (self.taps + self.window) * self.vectors + self.elements / (2 if self.t.pairs else 1)

    @property
    def iteration(self) -> int:
        """Instructions of an iteration."""
        return round(self.t.unroll * self.issued)

    @property
    def instructions(self) -> int:
        """Those of all of it, about."""
        rest = self.t.depth % self.t.unroll if self.t.depth > self.t.unroll else 0
        return self.iteration + round(rest * self.issued) + (2 + 2 * self.t.clamped) * self.pixels * self.vectors

    @property
    def cycles(self) -> float:
        """What the multiplier, the loads, or all of them take, about."""
        t, sums = self.t, self.pixels * self.vectors
        each = max(2 * self.taps * self.vectors, 2 * self.window * self.vectors, self.issued)
        iterations = _ITERATION * (t.depth // t.unroll) + _ENTRY if t.depth // t.unroll > 1 else 0
        return _BLOCK + t.depth * each + iterations + 4 * sums + t.clamped * (4 * sums + 4)
