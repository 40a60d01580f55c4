"""Images in tiles: loops over results of which parts have code of their own where windows reach beyond the image."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.sharing import Lines

_LETTERS = {"y": "u", "x": "v"}


@lru_cache(maxsize=64)
def tile_sizes(tile: str) -> tuple[int, int]:
    """Pixels and channels of a tile such as 3x2."""
    pixels, channels = tile.split("x")
    return int(pixels), int(channels)


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
            yield f"cut({name}, {first}, {_LETTERS[loop[0]]}{number})"
            name = f"{name}_{_LETTERS[loop[0]]}{number}"
        if not self.tiles:
            for number, extent in enumerate(self.parts):
                yield from self._tiled(loop, suffix + self.named(loop, number), extent)

    def _tiled(self, loop: str, suffix: str, extent: int) -> Iterator[str]:
        if (size := min(self.size, extent)) > 1:
            yield f"split({loop}{suffix}, {loop}i{suffix}, {size}{', early' * (extent % size > 0)})"

    def named(self, loop: str, part: int) -> str:
        """How names of a part end."""
        return "".join(f"_{_LETTERS[loop[0]]}{number}" for number in range(1, part + 1))

    def tile(self, part: int) -> int:
        """Results of a tile of a part."""
        return self.size if self.tiles else min(self.size, self.parts[part])

    def iterations(self, part: int) -> int:
        """Tiles of a part."""
        return self.parts[part] if self.tiles else -(-self.parts[part] // self.size)

    def early(self, part: int) -> bool:
        """Whether the last tile of a part starts early."""
        if self.tiles:
            return part == len(self.parts) - 1 and self.count % self.size > 0
        return self.parts[part] % self.tile(part) > 0

    def start(self, part: int) -> int:
        """The first result of a part."""
        first = sum(self.parts[:part])
        return min(first * self.size if self.tiles else first, self.count - self.tile(part))


def axis_of(g: Geometry, axis: int, size: int, *, by_tile: bool) -> TiledAxis:
    """Rows (0) or columns of results in tiles; those that see the same part of a window have code of their own.

    Args:
        by_tile: whether tiles are told apart, or rows and columns.
    """
    count = (g.rows, g.columns)[axis]
    parts = _alike(g, axis, size if by_tile else 1)
    return (
        TiledAxis(size, parts, True, count)
        if by_tile and len(parts) > 1
        else TiledAxis(size, parts if len(parts) > 1 else (count,), False, count)
    )


@lru_cache(maxsize=256)
def _alike(g: Geometry, axis: int, size: int) -> tuple[int, ...]:
    """How many tiles of so many rows, or columns, see the same part of windows, one after the other."""
    count = (g.rows, g.columns)[axis]
    if not any(g.pad[2 * axis : 2 * axis + 2]):
        return (-(-count // size),)
    starts = [min(at, count - size) for at in range(0, count, size)]
    return tuple(len(list(group)) for _, group in itertools.groupby(lines_of(g, axis, at, size) for at in starts))


def lines_of(g: Geometry, axis: int, first: int, size: int) -> tuple[Lines, ...]:
    """What each result of a tile sees inside of the image, counted from where the first window begins."""
    extent, stride, dilation, pad = ((g.height, g.width), g.stride, g.dilation, (g.pad[0], g.pad[2]))
    found = []
    for at in range(size):
        start = (first + at) * stride[axis] - pad[axis]
        inside = (k * dilation[axis] for k in range(g.kernel[axis]) if 0 <= start + k * dilation[axis] < extent[axis])
        found.append(tuple(at * stride[axis] + k for k in inside))
    return tuple(found)


@dataclass(frozen=True)
class ImageTiles:
    """Tiles of an image, each with all of its channels.

    Args:
        hardware_loop: `n` or `x`: the hardware loop, over channels or over columns.
        y, x, n: the loops over rows, columns and channels.
    """

    down: TiledAxis
    across: TiledAxis
    hardware_loop: str
    y: str = "y"
    x: str = "x"
    n: str = "n"

    def split(self) -> Iterator[str]:
        """The steps that make all tiles."""
        yield from self.down.split(self.y, "")
        for part in range(len(self.down.parts)):
            rows = self.down.named(self.y, part)
            if self.down.tile(part) > 1:
                yield f"reorder({self.y}i{rows}, {self.x}{rows})"
            yield from self.across.split(self.x, rows)

    def regions(self, numbers: Iterator[int] | None) -> list[TileRegion]:
        """The parts of the image that have code of their own, in their order; without numbers where it is one."""
        parts = itertools.product(range(len(self.down.parts)), range(len(self.across.parts)))
        return [TileRegion(self, *part, "" if numbers is None else f"r{next(numbers):02}") for part in parts]


@dataclass(frozen=True)
class TileRegion:
    """A part of the image.

    Args:
        down, across: its numbers along the axes.
        name: what names of its buffers end in.
    """

    image: ImageTiles
    down: int
    across: int
    name: str

    @property
    def names(self) -> str:
        """What names of its loops end in."""
        image = self.image
        return image.down.named(image.y, self.down) + image.across.named(image.x, self.across)

    @property
    def axes(self) -> tuple[tuple[str, TiledAxis, int], ...]:
        """Columns and rows, each with the number of its part."""
        return ("x", self.image.across, self.across), ("y", self.image.down, self.down)

    @property
    def tile(self) -> list[str]:
        """The loops of a tile, the inner one first."""
        loops = {"x": self.image.x, "y": self.image.y}
        return [f"{loops[name]}i{self.names}" for name, axis, part in self.axes if axis.tile(part) > 1]

    @property
    def hardware_loop(self) -> str:
        """The hardware loop."""
        image = self.image
        return f"{image.x if image.hardware_loop == 'x' else image.n}{self.names}"

    @property
    def outer(self) -> str:
        """The other of the loops over columns and channels, which stands around that."""
        image = self.image
        return f"{image.n if image.hardware_loop == 'x' else image.x}{self.names}"

    def inwards(self, *vectors: str) -> Iterator[str]:
        """The steps that bring the loops of a tile into the hardware loop, and into others over `vectors` in it."""
        tile, image = self.tile, self.image
        if len(tile) == 2:
            yield f"reorder({tile[0]}, {tile[1]})"
        for loop, outer in itertools.product((image.n, *vectors), tile):
            yield f"reorder({outer}, {loop}{self.names})"
        if image.hardware_loop == "x":
            yield f"reorder({image.x}{self.names}, {image.n}{self.names})"

    def iterations(self, channels: tuple[int, bool]) -> tuple[int, bool]:
        """Those of the hardware loop, and whether the last starts early; `channels` are those over channels."""
        if self.image.hardware_loop != "x":
            return channels
        across = self.image.across
        return across.iterations(self.across), across.early(self.across)


def hardware_loop(loop: str, iterations: int, early: bool, isa: str = "mve") -> Iterator[str]:
    """The steps that make a loop the hardware loop; a last iteration that starts early stands behind it."""
    if early and iterations > 1:
        yield f"cut({loop}, {iterations - 1}, e)"
        yield from (f"select({loop}_e, {isa})", f"block({loop}_e)")
        iterations -= 1
    yield from (f"select({loop}, {isa})", f"{'hardware_loop' if iterations > 1 else 'block'}({loop})")
