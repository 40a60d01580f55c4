"""What schedules of CONV2D of several pixels read and write where."""

from __future__ import annotations

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, PixelRows
from tosaic.backends.cortex_m.program.tree import BYTES


def pixel_walk(g: Geometry, s: PixelRows) -> Walk:
    """The loops over rows, tiles of pixels, blocks of channels, and in these over what registers hold."""
    walk = _Loops(g, s)
    return Walk(walk.loops, (*walk.image, *walk.weights, *walk.results))


class _Loops:
    """The loops of a schedule, and what is accessed in them."""

    def __init__(self, g: Geometry, s: PixelRows) -> None:
        self.g, self.s = g, s
        strips = g.rows / s.strip.tall if s.strip and not s.strip.tile else 1.0
        rows, tiles = g.rows / strips * g.columns / s.row, s.row / s.together
        self.iterations = {"batch": g.batch, "strip": strips, "y": rows, "x": tiles, "n": s.channels / s.block}
        self.order = ["batch", "strip", "y", "x", "n"]
        if s.blocks_outside:
            self.order = ["batch", "strip", *(["n", "y"] if s.copied or s.strip else ["y", "n"]), "x"]
        self.read = s.sums * s.taps * round_up(s.depth, s.lanes) + s.result.factor_bytes
        """Bytes of constants that a channel takes."""

    @property
    def loops(self) -> tuple[float, ...]:
        return (
            *(float(self.iterations[name]) for name in self.order),
            self.s.together / self.s.pixels,
            self.s.block / self.s.width,
        )

    def moves(self, *inside: float, **outside: float) -> tuple[float, ...]:
        """Bytes by which an address moves in each loop."""
        return (*(float(outside.get(name, 0)) for name in self.order), *inside)

    @property
    def image(self) -> list[ArrayAccess]:
        """How windows are read."""
        g, s = self.g, self.s
        size = BYTES[s.element]
        pixel, depth = g.channels * size, s.sums * s.depth * size
        apart, below = g.stride[1] * pixel, g.stride[0] * g.width * pixel
        image = g.height * g.width * pixel
        if s.strip is None or s.strip.tile:
            moves = self.moves(apart * s.pixels, 0, batch=image, y=below, x=apart * s.together)
            windows = ((s.pixels, float(apart)), *([(s.taps, float(g.width * pixel))] if s.strip else []))
            return [ArrayAccess("image", "input", depth, moves, inner=windows)]
        pitch = s.strip.pitch * size
        moves = self.moves(apart * s.pixels, 0, y=g.stride[0] * pitch, x=apart * s.together)
        outside = self.moves(batch=image, strip=s.strip.tall * below)[:2]
        windows = ((s.pixels, float(apart)), (s.taps, float(pitch)))
        return [
            ArrayAccess("image", "input", s.strip.height * s.strip.whole * size, outside),
            ArrayAccess("strip", "scratch", s.strip.bytes, (0.0, 0.0), writes=True),
            ArrayAccess("strip", "scratch", depth, moves, inner=windows),
        ]

    @property
    def weights(self) -> list[ArrayAccess]:
        """How weights and factors are read."""
        s, block = self.s, self.s.block * self.read
        inside = s.width * self.read
        if not s.copied:
            return [ArrayAccess("weights", "params", inside, self.moves(0, inside, n=block))]
        depth = self.order.index("n") + 1 if s.blocks_outside else 1
        outside = self.moves(n=block)[:depth]
        once = block if s.blocks_outside else s.channels * self.read
        return [
            ArrayAccess("weights", "params", once, outside),
            ArrayAccess("copy", "scratch", once, (0.0,) * len(outside), writes=True),
            ArrayAccess("copy", "scratch", inside, self.moves(0, inside, n=0 if s.blocks_outside else block)),
        ]

    @property
    def results(self) -> list[ArrayAccess]:
        """Sums, and what they become."""
        g, s = self.g, self.s
        size = BYTES[s.result.element]
        pixel, row = s.channels * size, s.row * s.channels * size
        rows = {"batch": g.rows * row, "strip": s.strip.tall * row if s.strip else 0, "y": row}
        moves = self.moves(s.pixels * pixel, s.width * size, x=s.together * pixel, n=s.block * size, **rows)
        sums = self.moves(FOUR * s.block * s.pixels, FOUR * s.width)
        return [
            ArrayAccess("sums", "scratch", FOUR * s.sums * s.width, sums, writes=True),
            ArrayAccess("out", "output", s.width * size, moves, writes=True, inner=((s.pixels, pixel),)),
        ]
