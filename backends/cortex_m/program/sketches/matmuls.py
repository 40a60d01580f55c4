"""Sketches of MATMUL in which a tile of sums lies in general registers.

Of int16 a result has two sums, which lie side by side: `parts` of a tile's channels that are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tosaic.backends.cortex_m.program.sketches.products import Tile, blocked, constants, epilogue, summed


def thumb_matmul(tile: Tile, high: bool, parts: int = 1) -> Iterator[str]:
    """MATMUL with products of words and sums in high registers: words of the rows of a tile alternate."""
    yield from ("widen(P, i32)",)
    yield from _begun(tile, high, parts)
    yield from summed(tile, "P", "h")
    yield from tile.ordered()
    if tile.pixels > 1:
        yield "reorder_dims(P, d021)"
    if tile.channels > 1:
        yield from (*_columns(tile, parts), "reorder_dims(Q, d0132)")
    yield from ("stage(P, k, pr, r)", "stage(Q, k, qr, r, i32)")
    yield from blocked(tile, tile.depth)
    yield from _ended(tile, high, parts)


def dsp_matmul(tile: Tile, high: bool, parts: int = 1) -> Iterator[str]:
    """MATMUL with products of halves, of an even depth: words of the rows, and of the columns, of a tile alternate."""
    yield from _begun(tile, high, parts)
    yield from summed(tile, "P")
    yield "split(k, kh, 2)"
    for loop in tile.loops:
        yield f"reorder(kh, {loop})"
    yield from ("split(ck, ch, 2)", "split(dk, dh, 2)", "divide_dim(P, 2, 2)", "divide_dim(Q, 2, 2)")
    if tile.pixels > 1:
        yield "reorder_dims(P, d0213)"
    if tile.channels > 1:
        yield from (*_columns(tile, parts), "reorder_dims(Q, d01324)")
    yield from tile.ordered()
    yield from tile.pairs()
    yield from tile.operands("k", "stage(Q, @, qh, r)", "stage(P, @, ph, r)")
    yield from blocked(tile, tile.depth // 2)
    yield from _ended(tile, high, parts)


def scalar_matmul(tile: Tile, high: bool, parts: int = 1) -> Iterator[str]:
    """MATMUL with products of words: halves are widened as they are loaded."""
    yield from _begun(tile, high, parts)
    yield from summed(tile, "P")
    yield from tile.ordered()
    yield from tile.operands("k", "stage(Q, @, qr, r, i32)", "stage(P, @, pr, r, i32)")
    yield from blocked(tile, tile.depth)
    yield from _ended(tile, high, parts)


def _results(tile: Tile, parts: int) -> Tile:
    """The tile of results."""
    return replace(tile, channels=tile.channels // parts)


def _begun(tile: Tile, high: bool, parts: int) -> Iterator[str]:
    """Tiles of results, and the sums of an image."""
    yield from epilogue(_results(tile, parts), high)
    yield from ("compute_at(S, v)", "compute_at(Q, v)")


def _columns(tile: Tile, parts: int) -> Iterator[str]:
    """The columns of a tile side by side."""
    if tile.channels > parts:
        yield f"split(dn, dni, {tile.channels // parts})"
    yield f"divide_dim(Q, 1, {tile.channels})"


def _ended(tile: Tile, high: bool, parts: int) -> Iterator[str]:
    yield from constants(_results(tile, parts), high, scaled=parts == 1)
