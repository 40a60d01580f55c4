"""Sketches of products for cores with vectors: schedules of CONV2D whose windows are whole vectors of a pixel.

`summed` lets the sums of a tile of pixels go through memory to a finish of whole vectors of results. `resident` keeps
weights in vectors, and finishes four sums at a time in registers. Names are those of `program.algorithms`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

LANES = 16
"""Bytes of a vector, and results of a finish."""
_PLAIN = ("inline(P)", "drop(ky)", "drop(kx)", "postpone(S)")


def _factors(rounded: bool) -> tuple[tuple[str, str], ...]:
    """The factors of a RESCALE, each with the name of its vectors."""
    return (("bias", "vb"), ("whole", "vm")) if rounded else (("bias", "vb"), ("multiplier", "vm"), ("down", "vr"))


@dataclass(frozen=True)
class Summed:
    """The numbers of a schedule whose sums go through memory.

    Args:
        row: pixels in all.
        channels: of the output.
        vectors: of a window.
        rounded: whether every shift is 31.
        pixels, width: pixels x channels whose sums lie in registers: channels are 1, 2 or 4.
        tiles: of these pixels whose sums of all channels lie in scratch memory at a time.
        share: pixels that share one reading of the factors.
        unroll: vectors of the depth in a turn of a loop over it; 0 where a turn is over channels.
        repeats: blocks of sums in a turn over channels.
        finish: vectors of results in a turn.
        ahead, finish_ahead: loads that run a turn ahead.
    """

    row: int
    channels: int
    vectors: int
    rounded: bool
    pixels: int
    width: int
    tiles: int
    share: int
    unroll: int
    repeats: int
    finish: int
    ahead: int
    finish_ahead: int

    @property
    def together(self) -> int:
        """Pixels whose sums lie in scratch memory at a time."""
        return self.pixels * self.tiles

    @property
    def levels(self) -> dict[int, str]:
        """The loops over blocks of channels, outermost first, each by the blocks in a turn."""
        blocks = 4 // self.width
        return {4 * blocks: "sn", 2 * blocks: "sh", blocks: "sq", 1: "si" if blocks > 1 else "sq"}

    @property
    def level(self) -> str:
        """The loop over blocks of channels in which sums are added up."""
        return self.levels[1 if self.unroll else self.repeats]

    @property
    def turned(self) -> str:
        """The hardware loop of the sums."""
        return "k" if self.unroll else self.level

    @property
    def cost(self) -> float:
        """About its cycles: what the multiplier, or the loads, take, and what the finish does."""
        turns, groups = -(-self.row // self.together), self.channels // LANES
        products = self.pixels * self.width * self.vectors
        loads = (self.pixels + self.width) * self.vectors
        block = 2 * max(products, loads) + self.pixels * max(1, self.width // 2) + 3 / self.repeats
        block += 10 + 4 * self.vectors / self.unroll if self.unroll else 0
        integers, moved = (
            (20 if self.rounded else 32) * self.share,
            2 * (4 * (self.share + 3 - self.rounded) + self.share),
        )
        finish = (max(integers, moved) + 6 / self.finish + 4 * (self.share == 1)) * self.together / self.share
        entries = 12 * (self.tiles + self.together / self.share)
        return turns * (self.tiles * LANES // self.width * groups * block + groups * finish + entries)


def summed(s: Summed) -> Iterator[str]:
    """The steps of a schedule whose sums go through memory."""
    yield from (*_PLAIN, f"rewrite(out, {'rounded' if s.rounded else 'doubled'})")
    yield f"rewrite(out, {'halves' if s.rounded else 'narrow'})"
    yield f"stage({'zero' if s.rounded else 'zero_half'}, b, z, r)"
    if s.together > 1:
        yield f"split(x, xi, {s.together}{', early' * (s.row % s.together > 0)})"
    around, shared = "x", ""
    if s.share > 1:
        shared = "xi"
        if s.share < s.together:
            yield f"split(xi, xr, {s.share})"
            shared = "xr"
    yield f"split(n, {'nu' if s.finish > 1 else 'ni'}, {LANES * s.finish})"
    turn = "n"
    if s.finish > 1:
        yield f"split(nu, ni, {LANES})"
        turn = "nu"
    if shared:
        yield from (f"reorder({shared}, {loop})" for loop in dict.fromkeys(("n", turn)))
    yield f"compute_at(S, {around})"
    yield from _narrowed(s, turn, bool(shared))
    yield from _added(s)
    yield from ("write_out(eq)", "write_out(bh)", "select(n, mve)", "hardware_loop(n)")
    # What runs ahead comes last: schedules that differ in that alone share all trees before.
    yield from (f"hoist({loop}, {loads})" for loop, loads in ((s.turned, s.ahead), ("n", s.finish_ahead)) if loads)


def _narrowed(s: Summed, turn: str, shared: bool) -> Iterator[str]:
    """Sixteen results of a turn, of each pixel: lane i of a vector of sums becomes byte 4 i + 2 q + h."""
    names = "BE" if s.rounded else "BFE"
    for name, source, op in zip(names, ("out", *names), ("sat8", "sat16", "sat16"), strict=False):
        yield f"part({source}, {op}, {turn}, {name}, {'q, i8' if name == 'B' else 'scratch, i16'})"
    last = int(shared)
    for name in names:
        half = f"{name.lower()}h"
        yield f"split({name}{last}, {half}, 2)"
        if name != "E":
            yield f"reorder({name}{last}, {half})"
    yield from (f"split(E{last}, eq, 2)", "reorder(eq, eh)", f"reorder(E{last}, eh)", f"reorder(E{last}, eq)")
    if shared:
        yield from ("reorder(E0, eh)", "reorder(E0, eq)")
    for name in names[1:]:
        yield from (f"divide_dim({name}, {last}, 2)", f"reorder_dims({name}, {'d021' if shared else 'd10'})")
        yield f"place({name}, q)"
    for factor, vector in _factors(s.rounded):
        yield from (f"pack({factor})", f"stage({factor}, eq, {vector}, q)")
    yield f"unfold(E{last}, v, q)"


def _added(s: Summed) -> Iterator[str]:
    """The sums of a tile, in the order in which they are finished."""
    tile = ""
    if s.pixels > 1:
        tile = "sx"
        if s.tiles > 1:
            yield f"split(sx, st, {s.pixels})"
            tile = "st"
        yield f"reorder({tile}, sn)"
    yield from ("split(sn, sh, 2)", "split(sn, sq, 2)", "split(sn, si, 4)")
    if s.channels > LANES:
        yield from (f"divide_dim(S, 3, {LANES})", "divide_dim(S, 4, 4)", "divide_dim(S, 5, 2)")
        yield "reorder_dims(S, d0123654)"
    else:
        yield from ("divide_dim(S, 3, 4)", "divide_dim(S, 4, 2)", "reorder_dims(S, d012543)")
    yield from ("reorder(sq, sh)", "reorder(si, sh)", "reorder(si, sq)")
    block = "si"
    inner = [tile] if tile else []
    if s.width == 4:
        block = "sq"
        inner = ["si", *inner]
    elif s.width == 2:
        yield "split(si, sc, 2)"
        inner = ["sc", *inner]
    yield f"stage(S, {block}, R, r)"
    for loop in reversed(inner):
        yield f"distribute({loop})"
    yield f"split(k, kl, {LANES})"
    depth = ["k"]
    if s.unroll > 1:
        yield f"split(k, ku, {s.unroll})"
        depth.append("ku")
    for level in depth:
        yield from (f"reorder({loop}b, {level})" for loop in reversed(inner))
    yield "pack(w)"
    loops, at = [*dict.fromkeys(s.levels.values())], s.level
    for outer, within in itertools.pairwise(loops[: loops.index(at) + 1]):
        yield f"fuse({outer}, {within})"
    yield from (f"stage(a, {depth[-1]}, va, q)", f"stage(w, {depth[-1]}, vw, q)", f"select({at}, mve)")
    yield f"hardware_loop({s.turned})"
    if s.unroll:
        yield f"block({at})"


@dataclass(frozen=True)
class Resident:
    """The numbers of a schedule whose weights stay in vectors while a hardware loop goes over the pixels.

    Args:
        row, channels, vectors, rounded: as of `Summed`.
        held: of the first four vectors of weights of a group of channels.
        factors: whether those of a group stay, too.
        unroll: groups of four sums in a turn.
    """

    row: int
    channels: int
    vectors: int
    rounded: bool
    held: int
    factors: bool
    unroll: int

    @property
    def cost(self) -> float:
        """About its cycles: as far as the pipes tell that four sums and their finish hold."""
        loads = self.vectors * 5 - self.held + (3 - self.rounded) * (not self.factors) + 1
        issued = 4 * self.vectors + loads + (7 if self.rounded else 9)
        turn = max(2 * (4 * self.vectors + 2), 2 * loads, issued) + 2 / self.unroll
        return self.channels / 4 * (self.row * turn + 30 + 15 * (self.row % self.unroll))


def resident(s: Resident) -> Iterator[str]:
    """The steps of a schedule whose weights stay in vectors."""
    yield from (*_PLAIN, f"rewrite(out, {'rounded' if s.rounded else 'doubled'})", "rewrite(out, lanes)")
    yield from ("stage(zero, b, z, r)", "split(n, ni, 4)", "reorder(x, n)")
    yield from ("compute_at(S, x)", "place(S, r)", "distribute(sn)", f"split(k, kl, {LANES})", "reorder(snb, k)")
    if s.vectors == 1:
        yield "drop(k)"
    if s.factors:
        yield from (f"stage({factor}, n, {vector}, q)" for factor, vector in _factors(s.rounded))
    yield f"stage(a, {'x' if s.vectors == 1 else 'k'}, va, q)"
    if s.vectors > 1:
        yield "write_out(k)"
    first = "x"
    if 0 < s.held < 4:
        yield f"cut(snb, {s.held})"
        first = "snb_t"
    if s.held == 4 and s.vectors == 1:
        yield "stage(w, n, vw, q)"
    elif s.held:
        yield "stage(w, n, vw, q, i8, snb)"
    if s.held < 4:
        yield f"stage(w, {first if s.held else 'snb'}, vx, q)"
    for number in range(1, s.vectors):
        yield f"stage(w, snb_{number}, vx{chr(ord('a') + number)}, q)"
    yield "unfold(ni, v, q)"
    if rest := s.row % s.unroll:
        yield f"cut(x, {s.row - rest})"
    if s.unroll > 1:
        yield f"split(x, xu, {s.unroll})"
    yield from ("select(n, mve)", "hardware_loop(x)", "pipeline(x, v0)", "block(n)")
