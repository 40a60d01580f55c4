"""Instructions of an order of issue moved to where nothing issues, while that saves cycles, or costs none."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial

from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.cortex_m.program.order_timing import Order, OrderTiming
from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

Registers = Mapping[int, str]
_REACH = 16
"""How far an instruction moves at most."""
_EFFORT = 8_000
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
        self.nodes, self.allocate, self.left = graph.nodes, allocate, _EFFORT
        self.timing = lru_cache(maxsize=1)(partial(OrderTiming, graph.nodes, pipeline, iterations))
        lines = [line for node in self.nodes for line in node.decoded]
        self.least = iterations * least_issue_cycles(lines, pipeline)

    def filled(self, order: Order, registers: Registers) -> tuple[Order, Registers]:
        """An order that takes no more cycles, with its registers."""
        order, registers = self._paired(order, registers)
        cycles, waiting, seen = self.timing(order).cycles, deque([order]), {order}
        while waiting and cycles > self.least:
            given = waiting.popleft()
            if self._fitting(given) is None:
                continue
            timing = self.timing(given)
            for source, target in _moves(timing.late, len(given)):
                moved = self._moved(given, source, target)
                if moved is None or moved in seen:
                    continue
                if self.left <= 0:
                    return order, registers
                seen.add(moved)
                if (found := self._cycles(timing, moved, source, target)) == cycles:
                    waiting.append(moved)
                elif found < cycles and (fitting := self._fitting(moved)) is not None:
                    order, registers, cycles, waiting = moved, fitting, found, deque([moved])
                    break
        return order, registers

    def _fitting(self, order: Order) -> Registers | None:
        """The registers of an order, if its values fit them."""
        with suppress(BackendError):
            return self.allocate(order)
        return None

    def _paired(self, order: Order, registers: Registers) -> tuple[Order, Registers]:
        """The same with instructions of 16 bits beside each other, which then issue together, where that costs none."""
        narrow = [i for i in order if any(line.narrow for line in self.nodes[i].decoded)]
        for first, second in itertools.pairwise(narrow):
            place, other = order.index(first), order.index(second)
            if other == place + 1:
                continue
            timing = self.timing(order)
            for source, target in ((place, other - 1), (other, place + 1)):
                moved = self._moved(order, source, target)
                if moved is None or self._cycles(timing, moved, source, target) > timing.cycles:
                    continue
                if (fitting := self._fitting(moved)) is not None:
                    registers, order = fitting, moved
                    break
        return order, registers

    def _cycles(self, timing: OrderTiming, moved: Order, source: int, target: int) -> int:
        cycles, timed = timing.of(moved, min(source, target), max(source, target))
        self.left -= timed
        return cycles

    def _moved(self, order: Order, source: int, target: int) -> Order | None:
        """The order with one instruction elsewhere, if it depends on none that it passes."""
        number = order[source]
        if target < source:
            legal = target >= 0 and self.nodes[number].needs.isdisjoint(order[target:source])
        else:
            legal = all(number not in self.nodes[passed].needs for passed in order[source + 1 : target + 1])
        if not legal or source == target:
            return None
        rest = [*order[:source], *order[source + 1 :]]
        return (*rest[:target], number, *rest[target:])


def _moves(late: Sequence[int], length: int) -> Iterator[tuple[int, int]]:
    """Source and target of instructions that move into a slot where nothing issues, or of those behind one."""
    for place in late:
        for distance in range(1, _REACH + 1):
            for other in (place + distance, place - distance):
                if 0 <= other < length:
                    yield from ((other, place), (place, other), (other, place - 1))
