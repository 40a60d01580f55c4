"""Products of one row in parts, for cores with vectors: the numbers of a schedule, and what follows from them.

Results go in parts: whole vectors of bytes, in blocks whose sums lie in scratch memory, and by fours what is left, or
all of wider results.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class RowPart:
    """Some channels.

    Args:
        loop, depth: the loops over them, and over a window.
        behind: what the names of its buffers end in.
        channels: how many they are; whole vectors of results where nothing is behind the names of the first part.
    """

    s: OneRow
    loop: str
    depth: str
    behind: str
    channels: int

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
    def width(self) -> int:
        """Channels whose sums lie in registers."""
        return next(n for n in range(min(self.s.width, self.block), 0, -1) if self.block % n == 0)

    @property
    def repeats(self) -> int:
        """Of these in a turn."""
        return self.s.repeats if self.block % (self.width * self.s.repeats) == 0 else 1

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
    def short(self) -> int:
        """Bytes of the last vector of a window where it is not whole."""
        return self.s.depth % LANES

    @property
    def held(self) -> int:
        """Whole vectors of a window that stay in registers."""
        return min(self.s.held, self.s.vectors)

    @property
    def cuts(self) -> int:
        """Times that the loop over a window is cut."""
        return (self.short > 0 and self.s.vectors > 0) + (0 < self.held < self.s.vectors)

    @property
    def turns(self) -> int:
        """Of the hardware loop of the sums."""
        return self.s.vectors // self.s.unroll if self.s.unroll else self.block // (self.width * self.repeats)

    @property
    def turned(self) -> str:
        """The hardware loop of the sums."""
        return self.depth if self.s.unroll else self.own("sj")

    def named(self, name: str) -> str:
        """A buffer that other parts have, too, by its name in this one."""
        return f"{name}{self.behind}"

    def own(self, name: str) -> str:
        """A new name of the part."""
        return f"{name}u" if self.behind else name


def row_parts(s: OneRow) -> list[RowPart]:
    """The parts of a row, whole vectors of results first."""
    parts = [RowPart(s, "n", "k", "", s.whole)] if s.whole else []
    if s.rest:
        behind = "_t" if s.whole else ""
        parts.append(RowPart(s, f"n{behind}", f"k{behind}", behind, s.rest))
    return parts
