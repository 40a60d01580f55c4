"""Instructions of an order of issue moved to where nothing issues, while that saves cycles, or costs none."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.simulators.beats import beats_cycles
from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

Order = tuple[int, ...]
Registers = Mapping[int, str]
_REACH = 16
"""How far an instruction moves at most."""
_EFFORT = 25_000
"""About how many instructions are timed for one block."""


def least_issue_cycles(lines: Iterable[Instruction], pipeline: Pipeline) -> int:
    """Cycles that no order of some instructions takes less than: those that a pipe is held, or of the issue of all."""
    held, issued, narrow = Counter[str](), 0, 0
    for line in lines:
        held[line.timing.pipe] += line.timing.occupancy
        issued += line.timing.occupancy if line.timing.pipe == "alu" else 1
        narrow += line.narrow
    issued -= narrow // 2
    del held["alu"]
    computed = (held["int"] + held["mul"] + held.pop("either", 0)) // 2
    return max(issued // pipeline.width, computed, *held.values())


class IdleSlots:
    """Moves single instructions of an order, which stays legal, by what the whole code then takes.

    Of a loop, what it takes is known to the cycle: an iteration is timed behind another one, so that what stands at its
    end runs beside the beginning of the next. Orders that take the same are searched on from, too.

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
        order, registers = self._paired(order, registers)
        cycles, late = self._timed(order)
        lines = [line for node in self.nodes for line in node.decoded]
        least = self.iterations * least_issue_cycles(lines, self.pipeline)
        waiting, seen = deque([(order, late)]), {order}
        while waiting and cycles > least:
            for moved in self._moves(*waiting.popleft()):
                if self.left <= 0:
                    return order, registers
                if moved in seen:
                    continue
                seen.add(moved)
                if (found := self._timed(moved))[0] > cycles:
                    continue
                with suppress(BackendError):
                    fitting = self.allocate(moved)
                    waiting.append((moved, found[1]))
                    if found[0] < cycles:
                        order, registers, cycles = moved, fitting, found[0]
                        waiting = deque([waiting.pop()])
                        break
        return order, registers

    def _paired(self, order: Order, registers: Registers) -> tuple[Order, Registers]:
        """The same with instructions of 16 bits beside each other, which then issue together, where that costs none."""
        narrow = [i for i in order if any(line.narrow for line in self.nodes[i].decoded)]
        for first, second in itertools.pairwise(narrow):
            place, other, cycles = order.index(first), order.index(second), self._timed(order)[0]
            for moved in (*self._moved(order, place, other - 1), *self._moved(order, other, place + 1)):
                if other > place + 1 and self._timed(moved)[0] <= cycles:
                    with suppress(BackendError):
                        registers, order = self.allocate(moved), moved
                        break
        return order, registers

    def _timed(self, order: Order) -> tuple[int, list[int]]:
        """The cycles of all iterations, and the places in the order before which nothing issues."""
        code = [(line, place) for place, i in enumerate(order) for line in self.nodes[i].decoded]
        lines, issues = [line for line, _ in code] * min(self.iterations, 2), list[int]()
        self.left -= len(lines)
        cycles = beats_cycles(lines, self.pipeline, issues)
        if self.iterations > 1:
            last, at = lines[len(code) - 1], issues[len(code) - 1]
            once = at + (last.timing.occupancy if last.timing.pipe == "alu" else 1)
            cycles += (self.iterations - 2) * (cycles - once)
        waits = itertools.pairwise(issues[-len(code) - 1 :] if self.iterations > 1 else [-1, *issues])
        return cycles, [place for (before, at), (_, place) in zip(waits, code, strict=True) if at > before + 1]

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
