"""The numbers of schedules of products of rows, for cores with vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

LANES = 16
"""Bytes of a vector, and results of a turn of the finish."""
FOUR = 4
"""Words of a vector."""
VECTORS = 8
"""Vector registers."""
_ROW, _BYTE, _PADDING, _MOVED, _TURN = 30, 0.27, 0.135, 5, 4
"""Cycles of a row of a strip, of a byte that is copied, of one of padding, of a vector of a window, and of a window."""
_PIXEL, _ELEMENT = 14, 0.5
"""Cycles of a pixel at the edge of an image, and of a byte of it."""


@dataclass(frozen=True)
class RowResult:
    """How sums become results.

    Args:
        form: `rounded` where every shift can be 31, `doubled` where none is below 32, else `shifted`.
        element: the type of a result.
        clamped, table: whether results of bytes have bounds, and are looked up.
        uniform: whether all channels have one scale.
        terms: whether what a channel adds to its sums is no constant, but `Z`, and each pixel adds a number `T`.
    """

    form: str
    element: str
    clamped: bool
    table: bool
    uniform: bool = False
    terms: bool = False

    @property
    def scale(self) -> tuple[str, ...]:
        """The constants of a RESCALE in the order of their use."""
        return {
            "rounded": ("whole",),
            "doubled": ("multiplier", "down"),
            "shifted": ("left", "multiplier", "rest"),
        }[self.form]

    @property
    def constants(self) -> tuple[str, ...]:
        """The constants of a channel in the order of their use."""
        return (*(() if self.terms else ("bias",)), *(() if self.uniform else self.scale))

    @property
    def factors(self) -> tuple[str, ...]:
        """What a channel has of its own to finish sums with, in the order of its use."""
        return (*(("Z",) if self.terms else ()), *self.constants)


@dataclass(frozen=True)
class ImageStrip:
    """Rows of an image between what pads it, in scratch memory.

    Args:
        rows: of results.
        tall: of those, how many a strip serves.
        height, pitch: its rows, and bytes of each.
        taps: rows and columns of parts of a window that are read on their own.
        left, whole, right: bytes of a row: of its padding, and between.
        above: whether some rows are padding.
        short: whether what is read of a window at a time is no whole vectors.
        runs: bytes of each part of a window that lies together, and how many there are: these are copied side by side;
            none where windows are read from the strip.
        run: the loop over these parts; that over windows where there is one of each.
        windows: of a strip, where they are copied.
        tile: the loop over tiles of pixels, each of which has a strip of its own, made where what its windows read does
            not all lie in the image; none where rows have strips.
        edges: how many of these tiles there are in an image, of all.
        pixel: bytes of one.
    """

    rows: int
    tall: int
    height: int
    pitch: int
    taps: tuple[int, int]
    left: int
    whole: int
    right: int
    above: bool
    short: bool
    runs: tuple[int, int] = (0, 0)
    run: str = ""
    windows: int = 0
    tile: str = ""
    edges: tuple[int, int] = (0, 0)
    pixel: int = 1

    @property
    def bytes(self) -> int:
        return self.height * self.pitch

    @property
    def fused(self) -> bool:
        """Whether rows of windows that are copied are one."""
        return self.windows > 0 and self.tall > 1

    @property
    def padded(self) -> bool:
        """Whether there is padding."""
        return self.above or self.left > 0 or self.right > 0

    @property
    def cycles(self) -> float:
        """About those that it takes to fill all strips of an image."""
        if self.tile:
            pixels = self.height * self.whole / self.pixel
            return self.edges[0] * pixels * (_PIXEL + _ELEMENT * self.pixel) + self.edges[1] * self._windows
        row = _ROW + _BYTE * self.whole
        if self.left or self.right:
            row += _ROW / 2 + _PADDING * (self.left + self.whole + self.right)
        return -(-self.rows // self.tall) * (self.height * row + self._windows)

    @property
    def _windows(self) -> float:
        """Cycles of copies of the windows of a strip."""
        return self.windows * (self.runs[1] * -(-self.runs[0] // LANES) * _MOVED + _TURN)


@dataclass(frozen=True)
class PixelRows:
    """The numbers of a schedule.

    Args:
        row: pixels in a row.
        channels: of the output.
        depth: bytes of a window, or of the part of it that lies in a row of the image.
        pixels, width: pixels x channels whose sums lie in registers.
        together: pixels whose sums lie in scratch memory at a time.
        share: pixels that share one reading of the factors.
        block: channels whose sums lie in scratch memory at a time, of those in whole vectors.
        repeats: of the sums in registers in a turn.
        unroll: vectors of the depth in a turn of a hardware loop over it; 0 where that goes over channels.
        held: vectors of each pixel that stay in registers.
        finish: vectors of results in a turn.
        ahead, finish_ahead: loads that run a turn ahead.
        copied: whether what a block of channels reads of constants is copied to scratch memory.
        strip: how windows of several pixels are read; None where each is one pixel of the image.
        constant: whether the host lays the weights out; else they are the second operand of a MATMUL, a part of which
            is copied to `W`.
        transposed: whether that lies by columns.
    """

    row: int
    channels: int
    depth: int
    result: RowResult
    pixels: int
    width: int
    together: int
    share: int
    block: int
    repeats: int
    unroll: int
    held: int
    finish: int
    ahead: int
    finish_ahead: int
    copied: bool = False
    strip: ImageStrip | None = None
    constant: bool = True
    transposed: bool = False

    @property
    def image(self) -> str:
        """The buffer that windows are read from."""
        if self.strip is None:
            return "a"
        return "Q" if self.strip.runs[1] else "P"

    @property
    def overlapping(self) -> bool:
        """Whether the windows of pixels that are read together overlap."""
        return self.image == "P"

    @property
    def taps(self) -> int:
        """Parts of a window that are read on their own."""
        return math.prod(self.strip.taps) if self.strip else 1

    @property
    def pixel(self) -> str:
        """The loop over the pixels whose sums lie in scratch memory; none over one."""
        return "" if self.together == 1 else "x" if self.together == self.row else "xi"

    @property
    def around(self) -> int:
        """Loops around that over the pixels of a row, which sums are told apart by."""
        return 1 if not self.constant or (self.strip and self.strip.fused) else 2

    @property
    def blocks_outside(self) -> bool:
        """Whether the loop over blocks of channels stands outside of those over tiles of pixels, which read the same
        weights then."""
        return (
            self.block < self.channels
            and not self.rest
            and self.image != "Q"
            and (self.pixel == "xi" or self.copied or self.overlapping)
        )

    @property
    def whole(self) -> int:
        """Channels in whole vectors of results, such that what is left of a copy has two dimensions."""
        if self.result.element != "i8":
            return 0
        alone = not self.constant and self.channels % LANES == 1
        return (self.channels - 2 * alone) // LANES * LANES

    @property
    def rest(self) -> int:
        """The other channels."""
        return self.channels - self.whole

    @property
    def vectors(self) -> int:
        """Whole vectors of a window."""
        return self.taps * (self.depth // LANES)

    @property
    def short(self) -> int:
        """Bytes of the last vector of a window where it is not whole."""
        return self.depth % LANES
