"""Products of one row in parts, for cores with vectors: the numbers of a schedule, and what follows from them.

Results go in parts: whole vectors of bytes, in blocks whose sums lie in scratch memory, and by fours what is left, or
all of wider results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

LANES = 16
"""Bytes of a vector, and results of a turn of the finish."""
FOUR = 4
"""Words of a vector."""


@dataclass(frozen=True)
class RowResult:
    """How sums become results.

    Args:
        form: `rounded` where every shift can be 31, `doubled` where none is below 32, else `shifted`.
        element: the type of a result.
        clamped, table: whether results of bytes have bounds, and are looked up.
    """

    form: str
    element: str
    clamped: bool
    table: bool

    @property
    def factors(self) -> tuple[str, ...]:
        """The constants of a channel in the order of their use."""
        return {
            "rounded": ("bias", "whole"),
            "doubled": ("bias", "multiplier", "down"),
            "shifted": ("bias", "left", "multiplier", "rest"),
        }[self.form]


@dataclass(frozen=True)
class OneRow:
    """The numbers of a schedule.

    Args:
        channels: of the output.
        depth: bytes of a window.
        width: channels whose sums lie in registers.
        block: channels whose sums lie in scratch memory at a time, of those in whole vectors.
        repeats: of these sums in a turn.
        unroll: vectors of the depth in a turn of a hardware loop over it; 0 where that goes over channels.
        held: vectors of the input that stay in registers.
        finish: vectors of results in a turn.
        ahead, finish_ahead: loads that run a turn ahead.
    """

    channels: int
    depth: int
    result: RowResult
    width: int
    block: int
    repeats: int
    unroll: int
    held: int
    finish: int
    ahead: int
    finish_ahead: int

    @property
    def whole(self) -> int:
        """Channels in whole vectors of results."""
        return self.channels // LANES * LANES if self.result.element == "i8" else 0

    @property
    def rest(self) -> int:
        """The other channels."""
        return self.channels - self.whole

    @property
    def vectors(self) -> int:
        """Whole vectors of a window."""
        return self.depth // LANES

    @property
    def short(self) -> int:
        """Bytes of the last vector of a window where it is not whole."""
        return self.depth % LANES


@dataclass(frozen=True)
class RowPart:
    """Some channels.

    Args:
        loop, depth: the loops over them, and over a window.
        behind: what the names of its buffers end in.
        channels: how many they are; whole vectors of results where nothing is behind the names of the first part.
        loops: how many loops over a window, or a part of it, there are before it is scheduled.
    """

    s: OneRow
    loop: str
    depth: str
    behind: str
    channels: int
    loops: int

    @property
    def whole(self) -> bool:
        """Whether results are whole vectors of bytes."""
        return self.s.whole > 0 and not self.behind

    @property
    def block(self) -> int:
        """Channels whose sums lie in scratch memory at a time."""
        return self.s.block if self.channels % self.s.block == 0 else self.channels

    @property
    def inner(self) -> str:
        """The loop over a block."""
        return self.loop if self.block == self.channels else f"{self.loop}m"

    @property
    def finish(self) -> int:
        """Vectors of results in a turn."""
        return self.s.finish if self.block % (LANES * self.s.finish) == 0 else 1

    @property
    def fours(self) -> int:
        """Vectors of four results in a turn: all where they are few."""
        vectors = self.block // FOUR
        if vectors <= FOUR:
            return max(1, vectors)
        return self.s.finish if vectors % self.s.finish == 0 else 1

    @property
    def groups(self) -> list[SumGroup]:
        """The channels of a block as they are added up: as many together as the schedule says, then what is left."""
        width = min(self.s.width, self.block)
        names = (f"k{'_t' * n}" for n in itertools.count(self.loops))
        loop, rest = "si" if self.whole else self.inner, self.block % width
        kinds = [(loop, self.depth, "", self.block - rest, width)]
        if rest:
            kinds.append((f"{loop}_t", next(names), "x", rest, rest))
        return [self._group(names, *kind) for kind in kinds]

    def _group(self, names: Iterator[str], loop: str, depth: str, behind: str, channels: int, width: int) -> SumGroup:
        held = 0 if behind else min(self.s.held, self.s.vectors)
        last = next(names) if self.s.short and self.s.vectors else depth
        left = next(names) if 0 < held < self.s.vectors else depth
        return SumGroup(self, loop, depth, last, left, behind, channels, width, held)

    def named(self, name: str) -> str:
        """A buffer that other parts have, too, by its name in this one."""
        return f"{name}{self.behind}"


@dataclass(frozen=True)
class SumGroup:
    """Channels of a block that are added up in one hardware loop.

    Args:
        loop, depth: the loops over them, and over a window.
        last: the loop over the last vector of a window where it is short.
        left: the loop over whole vectors of a window that do not stay in registers, where others do.
        behind: what names end in.
        channels, width: how many there are, and in registers.
        held: vectors of a window that stay.
    """

    part: RowPart
    loop: str
    depth: str
    last: str
    left: str
    behind: str
    channels: int
    width: int
    held: int

    @property
    def repeats(self) -> int:
        """Times as many sums as there are in registers in a turn."""
        return self.part.s.repeats if self.channels % (self.width * self.part.s.repeats) == 0 else 1

    @property
    def turns(self) -> int:
        """Of its hardware loop."""
        s = self.part.s
        return s.vectors // s.unroll if s.unroll else self.channels // (self.width * self.repeats)

    @property
    def turned(self) -> str:
        """Its hardware loop."""
        return self.depth if self.part.s.unroll else self.own("sj")

    @property
    def around(self) -> str:
        """The loop of which a turn is one block."""
        return self.own("sj") if self.part.s.unroll else self.loop

    @property
    def weights(self) -> str:
        """The constant that it reads."""
        return f"{self.part.named('w')}{self.behind}"

    @property
    def loops(self) -> int:
        """Loops over a window, or a part of it, that it adds."""
        return (self.behind != "") + (self.last != self.depth) + (self.left != self.depth)

    def own(self, name: str) -> str:
        """A new name."""
        return f"{name}{'u' * (self.part.behind != '')}{self.behind}"


def row_parts(s: OneRow) -> list[RowPart]:
    """The parts of a row, whole vectors of results first."""
    both = bool(s.whole and s.rest)
    parts = [RowPart(s, "n", "k", "", s.whole, 1 + both)] if s.whole else []
    if s.rest:
        behind, loops = "_t" if both else "", sum(g.loops for part in parts for g in part.groups)
        parts.append(RowPart(s, f"n{behind}", f"k{behind}", behind, s.rest, 1 + both + loops))
    return parts
