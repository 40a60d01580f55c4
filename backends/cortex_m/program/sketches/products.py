"""Sketches of products: schedules of CONV2D in which a tile of sums lies in general registers.

Each is a function of numbers that gives steps. The names of loops and buffers are those of `program.algorithms`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.assembly import GENERAL


@dataclass(frozen=True)
class Tile:
    """The numbers of a tile.

    Args:
        pixels, channels: of the sums that lie in registers.
        columns: pixels of a row.
        depth: products of a sum.
        unroll: steps of the depth that a block of assembly holds.
        isa: the instruction set.
        halves: whether it multiplies halves two by two.
        sums: the class of registers that sums lie in; `p` of 64 bits.
    """

    pixels: int
    channels: int
    columns: int
    depth: int
    unroll: int
    isa: str
    halves: bool
    sums: str = "r"

    @property
    def registers(self) -> int:
        """General registers that the sums take."""
        return self.pixels * self.channels * (2 if self.sums == "p" else 1)

    @property
    def held(self) -> bool:
        """Whether the operands of a step are all loaded before its products, in a row: registers hold them beside the
        sums and two pointers."""
        taken = self.registers + self.pixels + self.channels + 2
        return not self.halves and taken <= GENERAL

    @property
    def cost(self) -> float:
        """About the cycles of a product: its share of loads, which take one more where they stand alone, and of what a
        last tile repeats."""
        most, least = max(self.pixels, self.channels), min(self.pixels, self.channels)
        alone = 0 if self.halves or self.held else most
        loads = (most + 2 * least * self.halves + least + alone) / (self.pixels * self.channels)
        return self.repeated * (1 + loads + 1 / self.unroll) / (2 if self.halves else 1)

    @property
    def repeated(self) -> float:
        """How often a product is computed: what a last tile repeats, twice."""
        return -(-self.columns // self.pixels) * self.pixels / self.columns

    @property
    def outer(self) -> str:
        """The loop over the larger side of the tile, whose operands come one after the other while the others are
        held; empty where the tile is one sum."""
        if self.pixels == self.channels == 1:
            return ""
        return "sxb" if self.pixels >= self.channels else "snb"

    @property
    def loops(self) -> list[str]:
        """The loops over the sums of a tile, outermost first."""
        return [f"s{name}b" for name, extent in (("x", self.pixels), ("n", self.channels)) if extent > 1]

    def operands(self, depth: str, weights: str, pixels: str) -> Iterator[str]:
        """Operands in registers: those of one side for an iteration of loop `depth`, of the other for one of `outer`.

        Where they are held, both are in registers for an iteration of `depth`. `weights` and `pixels` are the steps,
        with `@` for the loop.
        """
        yield weights.replace("@", "snb" if self.outer == "snb" and not self.held else depth)
        yield pixels.replace("@", "sxb" if self.outer == "sxb" and not self.held else depth)

    def ordered(self) -> Iterator[str]:
        """The larger side outermost."""
        if self.outer == "snb" and self.pixels > 1:
            yield "reorder(sxb, snb)"

    def pairs(self) -> Iterator[str]:
        """Two iterations of the outer loop as one, so that their loads stand side by side."""
        extent = max(self.pixels, self.channels)
        if extent > 2 and extent % 2 == 0:
            yield f"split({self.outer}, sp, 2)"


class ThumbTile(Tile):
    """A tile whose sums lie in high registers; a product takes the place of a pixel, of which all channels but the last
    multiply a copy."""

    @property
    def cost(self) -> float:
        """About the cycles of a product: one LDM of all pixels, LDRB and SXTB of a weight, products and sums.

        What a block begins and ends with counts, too, when sums move to high registers and back.
        """
        sums = self.pixels * self.channels
        loads, copies = 1 + self.pixels + 3 * self.channels, self.pixels * (self.channels - 1)
        return self.repeated * (loads + copies + 2 * sums + (2 * sums + _ITERATION) / self.unroll) / sums


_ITERATION = 20
"""Cycles of an iteration of a loop of C around a block, where the registers of the block are saved."""


def epilogue(tile: Tile, high: bool) -> Iterator[str]:
    """Tiles of results, with the constants of a channel in registers."""
    if high:
        yield "rewrite(out, high)"
    if tile.pixels > 1:
        yield f"split(x, xi, {tile.pixels}{', early' * (tile.columns % tile.pixels > 0)})"
    if tile.channels > 1:
        yield f"split(n, ni, {tile.channels})"
    if tile.pixels > 1:
        yield "reorder(xi, n)"


def constants(tile: Tile, high: bool, *, scaled: bool = True) -> Iterator[str]:
    """The results of a tile written out, behind the constants of a channel, if a channel has some."""
    if tile.pixels > 1 and tile.channels > 1:
        yield "reorder(xi, ni)"
    around = "ni" if tile.channels > 1 else "n"
    if tile.pixels > 1:
        for factor in () if not scaled else ("multiplier", "round", "right") if high else ("multiplier", "shift"):
            yield f"stage({factor}, {around}, {factor}_r, r)"
        yield "unroll(xi)"
    if tile.channels > 1:
        yield "unroll(ni)"


def summed(tile: Tile, left: str, registers: str = "r") -> Iterator[str]:
    """Sums in registers at loop `n`, begun one by one, added up with the depth outermost; `left` is computed before."""
    yield "compute_at(S, x)"
    if left:
        yield f"compute_at({left}, x)"
    yield "compute_at(S, n)"
    yield f"place(S, {registers})"
    loops = [f"s{name}" for name, extent in (("x", tile.pixels), ("n", tile.channels)) if extent > 1]
    for loop in reversed(loops):
        yield f"distribute({loop})"
    for loop in reversed(loops):
        yield f"reorder({loop}b, k)"
    for loop in loops:
        yield f"unroll({loop})"


def blocked(tile: Tile, steps: int) -> Iterator[str]:
    """A block of `unroll` of the `steps` iterations that the loop over the depth has now."""
    if 1 < tile.unroll <= steps:
        yield f"split(k, ku, {tile.unroll})"
    yield f"select(k, {tile.isa})"
    yield "block(k)"


def dsp_conv2d(tile: Tile, high: bool, whole: bool, padded: bool) -> Iterator[str]:
    """CONV2D with products of halves: the windows of a tile are widened to halves once, for all channels.

    Args:
        high: whether the RESCALE is made of high words.
        whole: whether the channels of a pixel are whole words: then words of the pixels of a tile alternate, and bytes
            are widened two by two.
        padded: whether the image has padding.
    """
    yield from ("fuse(ky, kx)", "fuse(kx, k)", "widen(P, i16)")
    yield from _of_halves(tile, high, "P", whole, padded)


def half_conv2d(tile: Tile, high: bool, copied: bool) -> Iterator[str]:
    """CONV2D of int16 with products of halves, as they lie in windows.

    Args:
        high: whether the RESCALE is made of high words.
        copied: whether windows are copied first; else they are pixels, which are read where they lie.
    """
    yield from windows(copied)
    yield from _of_halves(tile, high, "P" if copied else "a", False, False)


def windows(copied: bool) -> Iterator[str]:
    """Windows as rows of a copy, or pixels where they lie."""
    yield from ("fuse(ky, kx)", "fuse(kx, k)") if copied else ("inline(P)", "drop(ky)", "drop(kx)")


def _of_halves(tile: Tile, high: bool, left: str, whole: bool, padded: bool) -> Iterator[str]:
    """Products of halves: weights, and of `left` the windows."""
    depth = -(-tile.depth // (4 * tile.unroll)) * 4 * tile.unroll
    if depth > tile.depth:
        yield f"pad(k, {4 * tile.unroll})"
    yield from epilogue(tile, high)
    yield from summed(tile, left.replace("a", ""))
    channels = tile.channels > 1
    yield from ("split(k, kl, 4)", "split(kl, ke, 2)")
    phase, lane = ("ke", "kl") if whole else ("kl", "ke")
    if whole:
        yield "reorder(kl, ke)"
    for loop in tile.loops:
        yield f"reorder({lane}, {loop})"
    yield from tile.ordered()
    # A word holds both phases of a channel.
    if channels:
        yield from ("pack(w)", "reorder_dims(w, d01342)")
    else:
        yield from ("divide_dim(w, 1, 4)", "divide_dim(w, 2, 2)", *(() if whole else ("reorder_dims(w, d0132)",)))
    if whole:
        yield from _whole_words(tile, padded)
        yield from tile.pairs()
    yield from tile.operands(phase, "stage(w, @, wh, r, i16)", f"stage({left}, @, ph, r)")
    yield f"write_out({phase})"
    yield from blocked(tile, depth // 4)
    yield from constants(tile, high)


def _whole_words(tile: Tile, padded: bool) -> Iterator[str]:
    """Windows in words of halves 0 and 2, then 1 and 3, of four channels; the words of all pixels side by side."""
    for loop, half in (("c", "ch"), *([("f", "fh")] if padded else [])):
        yield f"split({loop}, {half}, 4)"
        yield f"split({half}, {half}e, 2)"
    yield "reorder(ch, che)"
    yield from ("divide_dim(P, 3, 4)", "divide_dim(P, 4, 2)")
    yield f"reorder_dims(P, {'d013524' if tile.pixels > 1 else 'd012354'})"
    yield from ("stage(a, c, ab, r)", "stage(P, che, cp, r)", "write_out(che)", f"select(c, {tile.isa})", "block(c)")


def scalar_conv2d(tile: Tile, high: bool, copied: bool) -> Iterator[str]:
    """CONV2D with products of words, which bytes are widened to as they are loaded.

    Args:
        high: whether the RESCALE is made of high words.
        copied: whether windows are copied first; else they are pixels, which are read where they lie.
    """
    yield from windows(copied)
    yield from epilogue(tile, high)
    yield from summed(tile, "P" if copied else "")
    yield from tile.ordered()
    if tile.channels > 1:
        yield "pack(w)"
    yield from tile.operands("k", "stage(w, @, wr, r, i32)", f"stage({'P' if copied else 'a'}, @, ar, r, i32)")
    yield from blocked(tile, tile.depth)
    yield from constants(tile, high)


def thumb_conv2d(tile: Tile, high: bool, channels: int) -> Iterator[str]:
    """CONV2D with products of words and sums in high registers: words of the pixels of a tile alternate.

    Args:
        channels: of a pixel of the input.
    """
    yield from ("fuse(ky, kx)", "fuse(kx, k)", "widen(P, i32)")
    yield from epilogue(tile, high)
    yield from summed(tile, "P", "h")
    yield from tile.ordered()
    if tile.channels > 1:
        yield "pack(w)"
    if tile.pixels > 1:
        yield "reorder_dims(P, d0132)"
    if factor := next((n for n in (4, 3, 2) if channels % n == 0), 0):
        yield from (f"split(c, ci, {factor})", "unroll(ci)")
    yield from ("stage(P, k, ar, r)", "stage(w, k, wr, r, i32)")
    yield from blocked(tile, tile.depth)
    yield from constants(tile, high)
