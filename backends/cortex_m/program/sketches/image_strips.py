"""Strips of an image between what pads it: their numbers, and about what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS

LEFT, RIGHT = "l", "r"
"""The sides of a row."""
_ROW, _BYTE, _PADDING = 20, 0.25, 0.135
"""Cycles of a row of a strip, of a byte that is copied, and of one of padding."""
_MOVED, _GATHERED, _WINDOW, _WINDOWS = 4, 7, 1.5, 8
"""Cycles of a vector of a window that is copied, of one that is gathered, of a window, and of the loop over these."""
_EDGE, _PIXEL, _DECIDED, _ALONE = 10, 8, 12, 6
"""Cycles of a row of a strip of a tile, of a pixel beside it, once more where a mask is due, of the conditions of a
tile, and of a row of one window at a side."""
_FEW = 4
"""Rows of a window, most of whose places have all of them in the image."""


def lanes_of(element: str) -> int:
    """Elements of a type in a vector."""
    return REGISTERS["q"] // BYTES[element]


@dataclass(frozen=True)
class ImageStrip:
    """Rows of an image between what pads it, in scratch memory.

    Args:
        rows: of results.
        tall: of those, how many a strip serves.
        height, pitch: its rows, and elements of each.
        taps: rows and columns of parts of a window that are read on their own.
        left, whole, right: elements of a row: of its padding, and between.
        above: whether some rows are padding.
        short: whether what is read of a window at a time is no whole vectors.
        runs: elements of each part of a window that lies together, and how many there are: these are copied side by
            side; none where windows are read from the strip.
        run: the loop over these parts; that over windows where there is one of each.
        gathered: whether one instruction brings four parts of four bytes each.
        windows: of a strip, where they are copied.
        tile: the loop over tiles of pixels, each of which has a strip of its own, made where what its windows read does
            not all lie in the image; none where rows have strips.
        edges: how many of these tiles there are in an image, of all.
        pixel: elements of one.
        element: their type.
        sides: of the windows at the left and at the right of a row that reach its padding, where others are copied
            from the image.
        own: what names of one of these end in.
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
    gathered: bool = False
    windows: int = 0
    tile: str = ""
    edges: tuple[int, int] = (0, 0)
    pixel: int = 1
    element: str = "i8"
    sides: tuple[ImageStrip, ...] = ()
    own: str = ""

    @property
    def bytes(self) -> int:
        return max([self.height * self.pitch * BYTES[self.element], *(s.bytes for s in self.sides)])

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return lanes_of(self.element)

    @property
    def inner(self) -> int:
        """Windows that are copied, without those at the sides."""
        return self.windows - sum(s.windows for s in self.sides)

    @property
    def alone(self) -> bool:
        """Whether it is one window at a side, of few rows, which are short vectors, as are their parts in the image."""
        short = 1 < self.inside < self.whole <= self.lanes and self.height <= _FEW
        return bool(self.own) and self.windows == 1 and self.run == "qky" and short

    @property
    def inside(self) -> int:
        """Elements of a row that lie in the image."""
        return self.whole - self.left - self.right

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
        size = BYTES[self.element]
        if self.alone:
            return self.edges[0] * (_DECIDED + _ALONE * self.height)
        if self.tile:
            beside = min(self.left + self.right, self.whole) / self.pixel
            pixels = beside * _PIXEL * (1 + (self.pixel % self.lanes > 0))
            edge = self.height * (_EDGE + _BYTE * size * self.whole + pixels)
            return sum(s.cycles for s in self.sides) + self.edges[0] * edge + self.edges[1] * (_DECIDED + self._windows)
        row = _ROW + _BYTE * size * self.whole
        if self.left or self.right:
            row += _PADDING * size * (self.left + self.whole + self.right)
        return -(-self.rows // self.tall) * (self.height * row + self._windows)

    @property
    def _windows(self) -> float:
        """Cycles of copies of the windows of a strip."""
        if not self.windows:
            return 0
        if self.gathered:
            vectors = -(-self.runs[1] // lanes_of("i32")) * _GATHERED
        else:
            vectors = self.runs[1] * -(-self.runs[0] // self.lanes) * _MOVED
        return _WINDOWS + self.inner * (vectors + _WINDOW)
