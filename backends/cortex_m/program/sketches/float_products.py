"""The sketch of products of floats for cores with a floating-point unit: a tile of sums lies in its registers.

Names are those of `program.floats`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class FloatTile:
    """The numbers of a schedule.

    Args:
        pixels, channels: of the sums that lie in registers.
        columns: pixels of a row.
        width: channels of the output.
        unroll: elements of the depth in a block.
        left: what weights are multiplied with: the image, or copies of windows.
        constant: whether the host lays weights out.
    """

    pixels: int
    channels: int
    columns: int
    width: int
    depth: int
    unroll: int
    left: str
    clamped: bool
    constant: bool

    @property
    def cost(self) -> float:
        """About the cycles of a product: its share of loads, of an iteration, and of what a last tile repeats."""
        sums, repeated = self.pixels * self.channels, -(-self.columns // self.pixels) * self.pixels / self.columns
        around = (_ITERATION * self.depth / self.unroll + _BLOCK * sums + _BLOCK) / self.depth
        return repeated * (_PRODUCT + (_LOAD * (self.pixels + self.channels) + around) / sums)


_PRODUCT, _LOAD, _ITERATION, _BLOCK = 3, 2, 6, 8
"""Cycles of a product, of a load, of an iteration of a loop around a block, and of what begins and ends a sum."""


def float_products(t: FloatTile) -> Iterator[str]:
    """The steps of a schedule."""
    if t.pixels > 1:
        yield f"split(x, xi, {t.pixels}{', early' * (t.columns % t.pixels > 0)})"
        yield "reorder(xi, n)"
    if t.channels > 1:
        yield f"split(n, ni, {t.channels})"
    yield "compute_at(S, n)"
    if t.left == "P":
        yield "compute_at(P, x)"
    yield "place(S, s)"
    loops = [f"s{name}" for name, extent in (("x", t.pixels), ("n", t.channels)) if extent > 1]
    yield from (f"distribute({loop})" for loop in reversed(loops))
    for loop in reversed(loops):
        yield f"reorder({loop}b, k)"
    if t.constant and (t.channels > 1 and t.depth > 1):
        yield "pack(w)"
    yield from (f"stage({t.left}, k, ar, s)", "stage(w, k, wr, s)")
    if t.unroll > 1:
        yield f"split(k, ku, {t.unroll})"
    yield from ("select(k, fp)", "block(k)")
    for loop in loops:
        yield from (f"unroll({loop}{letter})" for letter in ("", *("cd" * t.clamped)))
        yield f"unroll({loop[1]}i)"
