"""The sketch of products of rows by weights of four bits in groups, for cores with vectors.

A turn of a hardware loop goes over some channels and all of the depth, or over some of its groups. 32 weights of a
channel are one load; two instructions make bytes of them, and two multiply. Names are those of `program.algorithms`
and of the primitive `nibbles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.primitives.nibbles import PACKED
from tosaic.backends.cortex_m.program.sketches.copies import moved
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, PixelRows
from tosaic.backends.cortex_m.program.sketches.row_parts import RowPart, row_parts
from tosaic.backends.cortex_m.program.sketches.row_sums import in_order
from tosaic.backends.cortex_m.program.sketches.rows import (
    block,
    finish,
    finish_hoisted,
    finish_selected,
    numbers,
    values,
)


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
        return self.group // PACKED

    @property
    def copied(self) -> bool:
        """Whether windows are copied, as the last group reaches beyond them."""
        return self.rows.depth % self.group > 0

    def width(self, part: RowPart) -> int:
        """Channels of a part whose sums lie in registers."""
        return next(n for n in range(self.rows.width, 0, -1) if part.block % n == 0)

    def turns(self, part: RowPart) -> int:
        """Of the hardware loop of a part."""
        unroll = self.rows.unroll
        return self.groups // unroll if unroll else part.block // self.width(part)


def nibble_rows(s: NibbleRows) -> Iterator[str]:
    """The steps of a schedule."""
    yield f"nibbles(k, {s.group})"
    if not s.copied:
        yield "inline(P)"
    yield from ("drop(ky)", "drop(kx)", "postpone(S)", "compute_at(S, n)")
    if s.copied:
        yield "compute_at(P, x)"
    yield f"rewrite(out, {s.rows.result.form})"
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
        yield from finish(part)
        yield from _sums(s, part)
    if s.copied:
        yield from moved("a", "c", "cc", s.rows.depth, LANES)
    for part in parts:
        yield from block(_around(s, part), _turned(s, part), s.turns(part))
        yield from finish_selected(part)
    for part in parts:
        if s.rows.ahead and s.turns(part) > 1:
            yield f"hoist({_turned(s, part)}, {s.rows.ahead})"
        yield from finish_hoisted(part)


def _own(part: RowPart, name: str) -> str:
    """A new name."""
    return f"{name}{'u' * (part.behind != '')}"


def _channels(part: RowPart) -> str:
    """The loop over the channels of a block."""
    return "si" if part.whole else part.inner


def _around(s: NibbleRows, part: RowPart) -> str:
    """The loop of which a turn is one block."""
    return _own(part, "sj") if s.rows.unroll else _channels(part)


def _turned(s: NibbleRows, part: RowPart) -> str:
    """The hardware loop."""
    return part.depth if s.rows.unroll else _own(part, "sj")


def _sums(s: NibbleRows, part: RowPart) -> Iterator[str]:
    """The sums of a part, in the order in which they are finished."""
    w, factors, total, k = (part.named(name) for name in ("w", "factors", "S", "k"))
    turn, each, width = _own(part, "sj"), _own(part, "sc"), s.width(part)
    yield from in_order(part, w, factors)
    yield f"split({_channels(part)}, {turn}, {part.block})"
    if width > 1:
        yield f"split({turn}, {each}, {width})"
    yield f"stage({total}, {turn}, {_own(part, 'R')}, r)"
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
