"""The sketches of products of rows by weights of four bits in groups, for cores with vectors, and with halves.

With vectors an iteration of a hardware loop goes over some channels and all of the depth, or over some of its groups.
32 weights of a channel are one load; two instructions make bytes of them, and two multiply. Names are those of
`program.algorithms` and of the primitive `nibbles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.copies import moved
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, PixelRows
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart
from tosaic.backends.cortex_m.program.sketches.row_parts import row_parts
from tosaic.backends.cortex_m.program.sketches.row_sums import in_order
from tosaic.backends.cortex_m.program.sketches.rows import (
    block,
    epilogue,
    epilogue_hoisted,
    epilogue_selected,
    numbers,
    values,
)

_WORD = 4
"""Bytes of a word, and inputs that are widened together."""


@dataclass(frozen=True)
class NibbleRows:
    """The numbers of a schedule.

    Args:
        rows: those of all products of rows; `unroll` counts groups, and the first vectors of a window stay nowhere.
        group: weights that have a factor, a multiple of 32.
    """

    rows: PixelRows
    group: int

    @property
    def groups(self) -> int:
        """Of a channel."""
        return -(-self.rows.depth // self.group)

    @property
    def chunks(self) -> int:
        """Vectors of packed weights of a group."""
        return self.group // (2 * LANES)

    @property
    def copied(self) -> bool:
        """Whether windows are copied, as the last group reaches beyond them."""
        return self.rows.depth % self.group > 0

    def width(self, part: RowPart) -> int:
        """Channels of a part whose sums lie in registers."""
        return next(n for n in range(self.rows.width, 0, -1) if part.block % n == 0)

    def iterations(self, part: RowPart) -> int:
        """Of the hardware loop of a part."""
        unroll = self.rows.unroll
        return self.groups // unroll if unroll else part.block // self.width(part)


def nibble_rows(s: NibbleRows) -> Iterator[str]:
    """The steps of a schedule."""
    yield f"nibbles(k, {s.group}, {LANES}, upper_half)"
    if not s.copied:
        yield "inline(P)"
    yield from ("drop(ky)", "drop(kx)", "postpone(S)", *s.rows.result.biased, "compute_at(S, n)")
    if s.copied:
        yield "compute_at(P, x)"
    yield from s.rows.result.rescaled
    if s.rows.whole and s.rows.rest:
        yield f"cut(n, {s.rows.whole})"
    parts = row_parts(s.rows)
    for part in parts:
        yield from values(part)
    if len(parts) > 1:
        yield from (f"apart({name}, {name}_t, n_t)" for name in ("w", "factors", *s.rows.result.factors))
        yield from (f"pack({name}_t)" for name in s.rows.result.factors)
    yield from numbers(s.rows)
    yield "stage(upper_half, b, uh, r)"
    for part in parts:
        yield from epilogue(part)
        yield from _sums(s, part)
    if s.copied:
        yield from moved("a", "c", "cc", s.rows.depth, LANES)
    for part in parts:
        yield from block(_around(s, part), _hardware_loop(s, part), s.iterations(part))
        yield from epilogue_selected(part)
    for part in parts:
        if s.rows.ahead and s.iterations(part) > 1:
            yield f"hoist({_hardware_loop(s, part)}, {s.rows.ahead})"
        yield from epilogue_hoisted(part)


def _own(part: RowPart, name: str) -> str:
    """A new name."""
    return f"{name}{'u' * (part.behind != '')}"


def _channels(part: RowPart) -> str:
    """The loop over the channels of a block."""
    return "si" if part.whole else part.inner


def _around(s: NibbleRows, part: RowPart) -> str:
    """The loop of which an iteration is one block."""
    return _own(part, "sj") if s.rows.unroll else _channels(part)


def _hardware_loop(s: NibbleRows, part: RowPart) -> str:
    """The hardware loop."""
    return part.depth if s.rows.unroll else _own(part, "sj")


def _sums(s: NibbleRows, part: RowPart) -> Iterator[str]:
    """The sums of a part, in the order of the epilogue."""
    w, factors, total, k = (part.named(name) for name in ("w", "factors", "S", "k"))
    iteration, each, width = _own(part, "sj"), _own(part, "sc"), s.width(part)
    yield from in_order(part, w, factors)
    yield f"split({_channels(part)}, {iteration}, {part.block})"
    if width > 1:
        yield f"split({iteration}, {each}, {width})"
    yield f"stage({total}, {iteration}, {_own(part, 'R')}, r)"
    inside = _own(part, "ku") if s.rows.unroll else k
    if width > 1:
        inside = f"{each}b"
        yield from (f"distribute({each})", f"reorder({inside}, {k})")
    if width == 4:
        yield f"split({_own(part, 'R')}0, {_own(part, 'rp')}, 2)"
    if s.chunks > 1 and width > 1:
        yield from (f"expand({part.named('G')}, {inside})", f"distribute({inside})")
        yield f"reorder({inside}b, {part.named('kh')})"
        inside = f"{inside}c"
    if width > 1 and s.groups * s.chunks > 1:
        yield f"pack({w})"
    if width > 1 and s.groups > 1:
        yield f"pack({factors})"
    if s.rows.unroll:
        yield f"split({k}, {_own(part, 'ku')}, {s.rows.unroll})"
    yield from (f"place({part.named(name)}, {memory})" for name, memory in (("N", "q"), ("V", "q"), ("G", "r")))
    lanes = part.named("kv")
    yield f"spread(uh, {_around(s, part)}, {_own(part, 'uq')}, q, i8, {lanes})"
    yield f"distribute({lanes})"
    yield from _read(s, part, inside)


def _read(s: NibbleRows, part: RowPart, inside: str) -> Iterator[str]:
    """The vectors of a window, and the factors."""
    at = part.named("kh") if s.chunks > 1 else _own(part, "ku") if s.rows.unroll else part.named("k")
    image = _own(part, "va")
    yield f"stage({'P' if s.copied else 'a'}, {at}, {image}, q)"
    yield f"split({image}0, {_own(part, 'vl')}, {LANES})"
    yield f"stage({part.named('factors')}, {inside}, {_own(part, 'fr')}, r, i32)"


@dataclass(frozen=True)
class NibbleHalves:
    """The numbers of a schedule for cores that multiply halves two by two.

    Args:
        pixels: of a row.
        depth: products of a sum, a multiple of 4.
        group: weights that have a factor, a multiple of 32.
        channels: whose sums lie in registers.
        unroll: words of weights of a channel in a block.
        high: whether the RESCALE is made of high words.
    """

    pixels: int
    depth: int
    group: int
    channels: int
    unroll: int
    high: bool


def nibble_halves(s: NibbleHalves) -> Iterator[str]:
    """The steps of a schedule: a word of weights is two of bytes, and each of these two of halves."""
    yield from (f"nibbles(k, {s.group}, {_WORD})", "drop(ky)", "drop(kx)", "widen(P, i16)")
    if s.high:
        yield "rewrite(out, high)"
    if s.channels > 1:
        yield f"split(n, ni, {s.channels})"
    yield "compute_at(S, n)"
    if s.pixels > 1:
        yield "compute_at(P, x)"
    yield "place(S, r)"
    if s.channels > 1:
        yield from ("distribute(sn)", "reorder(snb, k)", "expand(G, snb)", "distribute(snb)", "reorder(snbb, kh)")
        yield from ("pack(w)", "pack(factors)")
    yield from ("place(G, r)", "split(kl, ke, 2)", "reorder(kl, ke)", "distribute(kv)", "place(N, r)", "place(V, r)")
    yield from (f"split(c, ch, {_WORD})", "split(ch, che, 2)", "reorder(ch, che)")
    yield from (f"divide_dim(P, 5, {_WORD})", "divide_dim(P, 6, 2)", "reorder_dims(P, d01234576)")
    yield from ("stage(a, c, ab, r)", "stage(P, che, cp, r)", "write_out(che)", "select(c, dsp)", "block(c)")
    iteration = "kh"
    if s.unroll > 1:
        iteration = "ku"
        yield f"split(kh, ku, {s.unroll})"
    yield from (f"stage(P, {iteration}, ph, r)", "stage(V, ke, wh, r, i16)", "write_out(ke)", "write_out(kj)")
    if s.channels > 1:
        yield "unroll(snbb)"
    yield from ("select(kh, dsp)", "block(kh)")
    if s.channels > 1:
        yield from ("unroll(sn)", "unroll(snb)", "unroll(snbc)", "unroll(ni)")
