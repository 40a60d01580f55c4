"""Instructions of an order of issue moved to where nothing issues, as long as that saves cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.simulators.beats import beats_cycles
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

Order = tuple[int, ...]
Registers = Mapping[int, str]
_REACH = 16
"""How far an instruction moves at most."""
_EFFORT = 40_000
"""About how many instructions are timed for one block."""


class IdleSlots:
    """Moves single instructions of an order, which stays legal, by what the whole code then takes.

    Of a loop, what it takes is known to the cycle: an iteration is timed behind another one, so that what stands at its
    end runs beside the beginning of the next.

    Args:
        allocate: the registers of the values in an order; refuses one whose lifetimes do not fit.
        iterations: of the loop; 1 of code that is none.
    """

    def __init__(
        self, graph: Dependences, pipeline: Pipeline, iterations: int, allocate: Callable[[Order], Registers]
    ) -> None:
        self.nodes, self.pipeline, self.iterations, self.allocate = graph.nodes, pipeline, iterations, allocate
        self.left = _EFFORT

    def filled(self, order: Order, registers: Registers) -> tuple[Order, Registers]:
        """An order that takes no more cycles, with its registers."""
        cycles, late = self._timed(order)
        least = self._least()
        while cycles > least:
            for moved in self._moves(order, late):
                if self.left <= 0:
                    return order, registers
                if (found := self._timed(moved))[0] < cycles:
                    try:
                        registers = self.allocate(moved)
                    except BackendError:
                        continue
                    order, (cycles, late) = moved, found
                    break
            else:
                break
        return order, registers

    def _timed(self, order: Order) -> tuple[int, list[int]]:
        """The cycles of all iterations, and the places in the order before which nothing issues."""
        code = [(line, place) for place, i in enumerate(order) for line in self.nodes[i].decoded]
        lines, late = [line for line, _ in code], list[int]()
        self.left -= 3 * len(lines) if self.iterations > 1 else len(lines)
        if self.iterations == 1:
            return beats_cycles(lines, self.pipeline, late), [code[number][1] for number in late]
        once, twice = beats_cycles(lines, self.pipeline), beats_cycles(lines * 2, self.pipeline, late)
        places = [code[number - len(code)][1] for number in late if number >= len(code)]
        return once + (self.iterations - 1) * (twice - once), places

    def _least(self) -> int:
        """Cycles that no order takes less than: those that one pipe is held, or of the issue of all."""
        held, issued = Counter[str](), 0
        for line in (line for node in self.nodes for line in node.decoded):
            held[line.timing.pipe] += line.timing.occupancy
            issued += line.timing.occupancy if line.timing.pipe == "alu" else 1
        del held["alu"]
        computed = (held["int"] + held["mul"] + held.pop("either", 0)) // 2
        width = self.pipeline.width
        return self.iterations * max(issued // width, computed, *held.values())

    def _moves(self, order: Order, late: Sequence[int]) -> Iterator[Order]:
        """Orders in which an instruction moved into a slot where nothing issues, or the one behind it moved."""
        for place in late:
            for distance in range(1, _REACH + 1):
                for other in (place + distance, place - distance):
                    if 0 <= other < len(order):
                        yield from self._moved(order, other, place)
                        yield from self._moved(order, place, other)
                        yield from self._moved(order, other, place - 1)

    def _moved(self, order: Order, source: int, target: int) -> Iterator[Order]:
        """The order with one instruction elsewhere, if it depends on none that it passes."""
        number = order[source]
        if target < source:
            legal = target >= 0 and self.nodes[number].needs.isdisjoint(order[target:source])
        else:
            legal = all(number not in self.nodes[passed].needs for passed in order[source + 1 : target + 1])
        if legal and source != target:
            rest = [*order[:source], *order[source + 1 :]]
            yield (*rest[:target], number, *rest[target:])
