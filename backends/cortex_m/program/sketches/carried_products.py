"""Sketches of products whose weights lie two in a half, so that one instruction widens four of them."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.products import Tile, blocked, constants, epilogue, windows


def _carried(copied: bool) -> Iterator[str]:
    """Weights two in a half; windows are copied before their bytes become factors, or pixels are read in place."""
    yield from windows(copied)
    yield "carry(k, V, w16)"


def _factors(tile: Tile, copied: bool) -> Iterator[str]:
    """The factors of two pairs from a word of four bytes."""
    iteration, words = "V3", next(n for n in (4, 3, 2, 1) if tile.depth // 4 % n == 0)
    yield "distribute(V3h)"
    if words > 1:
        iteration = "V3u"
        yield f"split(V3, V3u, {words})"
    yield from (f"stage({'P' if copied else 'a'}, {iteration}, pw, r)", f"stage(V, {iteration}, vw, r)")
    yield from (f"select(V3, {tile.isa})", "block(V3)")


def carried_dense(tile: Tile, copied: bool) -> Iterator[str]:
    """A dense layer whose weights lie two in a half, so that one instruction widens four of them."""
    yield from _carried(copied)
    yield from epilogue(tile, True)
    yield from ("compute_at(S, n)", "place(S, r)")
    if tile.channels > 1:
        yield from ("distribute(sn)", "reorder(snb, k)", "unroll(sn)")
    yield "split(k, kh, 2)"
    if tile.channels > 1:
        yield "reorder(kh, snb)"
    yield "distribute(kh)"
    yield from tile.pairs()
    iteration = "snb" if tile.channels > 1 else "k"
    yield from (f"stage(w16, {iteration}, hr, r)", "pack(w16)", f"bind(low, {iteration}, lr, r, i16)")
    yield from ("split(V3, V3h, 2)", "divide_dim(V, 3, 2)", "reorder_dims(V, d012354)")
    yield from _factors(tile, copied)
    yield "stage(V, k, vr, r)"
    yield from blocked(tile, tile.depth // 4)
    yield from constants(tile, True)


def carried_conv2d(tile: Tile, copied: bool) -> Iterator[str]:
    """CONV2D of several pixels whose weights lie two in a half: a word of weights serves all pixels of a tile as it is,
    and once more when two of its bytes are widened."""
    yield from _carried(copied)
    yield from epilogue(tile, True)
    yield from ("compute_at(S, x)", "compute_at(V, x)", *(["compute_at(P, x)"] if copied else []))
    yield from ("compute_at(S, n)", "place(S, r)")
    loops = [f"s{name}" for name, extent in (("x", tile.pixels), ("n", tile.channels)) if extent > 1]
    yield from (f"distribute({loop})" for loop in reversed(loops))
    yield from (f"reorder({loop}b, k)" for loop in reversed(loops))
    yield from (f"unroll({loop})" for loop in loops)
    yield "split(k, kh, 2)"
    yield from (f"reorder(kh, {loop}b)" for loop in loops)
    yield "distribute(kh)"
    yield from (f"distribute({loop}b)" for loop in reversed(loops))
    # Words of all pixels of a small tile fit the registers, else two or one at a time.
    iterations = ("sxb", "sxbb") if tile.pixels > 2 else ("k",)
    if tile.pixels > 2 and tile.pixels % 2 == 0:
        yield from ("split(sxb, sp, 2)", "split(sxbb, sq, 2)")
    yield from ("stage(w16, k, hr, r)", *(["pack(w16)"] if tile.channels > 1 else []), "bind(low, k, lr, r, i16)")
    yield from ("split(V3, V3h, 2)", "divide_dim(V, 3, 2)", "reorder_dims(V, d013524)")
    yield from _factors(tile, copied)
    yield from (f"stage(V, {iteration}, {name}, r)" for iteration, name in zip(iterations, ("vr", "vs"), strict=False))
    yield from blocked(tile, tile.depth // 4)
    yield from constants(tile, True)
