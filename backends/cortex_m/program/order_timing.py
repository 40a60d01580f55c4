"""The cycles of an order of issue, and of others that differ from it in one place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tosaic.backends.cortex_m.program.dependences import DependentInstruction
from tosaic.backends.simulators.beats import Scoreboard
from tosaic.backends.target import Pipeline

Order = tuple[int, ...]


class OrderTiming:
    """The cycles of all iterations of an order, and the places in it before which nothing issues.

    Of a loop, two iterations are timed: what the end of one holds delays the next. The scoreboard in front of each
    instruction is kept, so another order is timed where it differs and until it issues as this one does again.

    Args:
        nodes: the instructions of one iteration.
        iterations: of the loop; 1 of code that is none.
        order: numbers of instructions.
    """

    def __init__(
        self, nodes: Sequence[DependentInstruction], pipeline: Pipeline, iterations: int, order: Order
    ) -> None:
        self.nodes, self.iterations, self.length = nodes, iterations, len(order)
        board, self._boards, issues = Scoreboard(pipeline), list[Scoreboard](), [-1]
        for number in order * min(iterations, 2):
            self._boards.append(board.copy())
            for line in nodes[number].decoded:
                board.issue((line,))
                issues.append(board.latest)
        self._boards.append(board)
        self.cycles = self._whole(self._boards[self.length].clock, board.clock)
        places = [place for place, number in enumerate(order) for _ in nodes[number].decoded]
        waits = itertools.pairwise(issues[-len(places) - 1 :])
        self.late = [place for (before, at), place in zip(waits, places, strict=True) if at > before + 1]

    def of(self, other: Order, first: int, last: int) -> tuple[int, int]:
        """The cycles of an order that differs from place `first` to `last`, and how many instructions were timed."""
        place, end, delay, timed = first, len(self._boards) - 1, 0, 0
        board, once = self._boards[first].copy(), 0
        while place < end:
            board.issue(self.nodes[other[place % self.length]].decoded)
            place, timed = place + 1, timed + 1
            if place == self.length:
                once = board.clock + delay
            if first <= place % self.length <= last or not board.like(self._boards[place]):
                continue
            delay += board.clock - self._boards[place].clock
            if place < self.length:
                once = self._boards[self.length].clock + delay
            again = first + self.length
            place = again if place <= again < end else end
            board = self._boards[place].copy()
        return self._whole(once, board.clock + delay), timed

    def _whole(self, once: int, twice: int) -> int:
        """The cycles of all iterations, given those of the first and of the first two."""
        return once + (self.iterations - 1) * (twice - once) if self.iterations > 1 else twice
