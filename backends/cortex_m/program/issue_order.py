"""One order of issue of a block, by list scheduling."""

from __future__ import annotations

from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

_WINDOW = 48
"""How many of the instructions that stand next are chosen from."""
NO_FIT = "the vectors of an iteration do not fit the registers"


class IssueOrder:
    """List scheduling: what can start first goes first, then what is preferred, then what stands first.

    Vectors are started in the order in which they stand, and at most `most` of them live at a time. None is started
    from nothing that would leave fewer than `spare` for the results of others. Where `most` is 0, each takes a register
    as it starts: that in which the next iteration finds it, or any that is free, those last that are kept for the next
    iteration.

    Attributes:
        lived: the most vectors that lived when one more was allowed.
        registers: the registers that they took.
    """

    def __init__(self, graph: Dependences, most: int, spare: int, prefers: str, pipeline: Pipeline | None) -> None:
        self.graph, self.nodes, self.most, self.spare, self.prefers = graph, graph.nodes, most, spare, prefers
        self.offsets_ahead = pipeline.offsets_ahead if pipeline else 0
        self.store_to_load = pipeline.store_to_load if pipeline else 0
        self.stored = -self.store_to_load - 1
        self.waiting = [len(node.needs) for node in self.nodes]
        self.ready = {i for i, needed in enumerate(self.waiting) if not needed}
        self.needed_by: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for earlier in node.needs:
                self.needed_by[earlier].append(number)
        self.users = [set(users) for users in graph.users]
        begun = [i for i, node in enumerate(self.nodes) if node.gives is not None and not node.takes]
        free = prefers == "free"
        self.from_nothing = [i for i in begun if not free or self.nodes[i].access == "load" or not self.nodes[i].fed_by]
        self.passed = sorted({*begun}.difference(self.from_nothing))
        self.fed_at = [0] * len(self.nodes)
        self.busy = {"int": 0, "mul": 0}
        self.clock = 0
        self.live = set(range(len(graph.crossing)))
        self.registers = dict(zip(self.live, graph.block.vectors, strict=False))
        if len(self.registers) < len(self.live):
            raise BackendError(NO_FIT)
        self.copies = {node.gives for node in self.nodes if node.copy is not None and not most}
        self.lived = 0
        self.busiest = self._busiest()
        self.behind = self._behind() if prefers == "longest" else [0] * len(self.nodes)

    def run(self) -> tuple[int, ...]:
        """The numbers of the instructions in the order of issue.

        Raises:
            BackendError: too many vectors live at a time.
        """
        order = list[int]()
        starts, begun = set(self.from_nothing), iter(self.from_nothing)
        first = next(begun, None)
        for end in range(_WINDOW, _WINDOW + len(self.nodes)):
            choices = [i for i in self.ready if i < end and (i == first or i not in starts) and self._may(i)]
            if not choices:
                raise BackendError(NO_FIT)
            best = min(choices) if self.graph.decode is None else min(choices, key=self._rank)
            if best == first:
                first = next(begun, None)
            self._issue(best)
            order.append(best)
        return tuple(order)

    def _rank(self, number: int) -> tuple[int, bool, int, bool, int]:
        """What is least of this goes first."""
        later = self.prefers in ("loads", "free") and self.nodes[number].access != "load"
        idle = self.prefers != "first" and self._pipe(number) != self.busiest
        return self._start(number), later, -self.behind[number], idle, number

    def _behind(self) -> list[int]:
        """Cycles from the issue of each instruction until all that waits for it is done."""
        found = [0] * len(self.nodes)
        for number, node in reversed(list(enumerate(self.nodes))):
            found[number] = node.timing.latency + max((found[i] for i in self.needed_by[number]), default=0)
        return found

    def _busiest(self) -> str:
        held: dict[str, int] = {}
        for node in self.nodes:
            held[node.timing.pipe] = held.get(node.timing.pipe, 0) + node.timing.occupancy
        held.pop("alu", None)
        return max(held, key=lambda pipe: held[pipe], default="")

    def _pipe(self, number: int) -> str:
        pipe = self.nodes[number].timing.pipe
        if pipe != "either":
            return pipe
        return "int" if self.busy["int"] <= self.busy["mul"] else "mul"

    def _start(self, number: int) -> int:
        at = max(self.clock, self.busy.get(self._pipe(number), 0), self.fed_at[number])
        return at + (at == self.stored + self.store_to_load and self.nodes[number].access == "load")

    def _may(self, number: int) -> bool:
        """Whether the registers allow it."""
        node = self.nodes[number]
        if node.gives is None:
            return True
        if not self.most:
            return self._register(number) is not None and self._leaves(number)
        if not node.instruction.apart and any(len(self.users[v]) == 1 for v in node.takes):
            return True
        live = len(self.live)
        if live >= (self.most if node.takes else self.most - self.spare):
            return False
        self.lived = max(self.lived, live)
        return True

    def _leaves(self, number: int) -> bool:
        """Whether registers are left for vectors that stand before one and have not started: free ones, or those of
        vectors that others want before."""
        passed = [i for i in self.passed if i < number]
        if not passed:
            return True
        free = len(self.graph.block.vectors) - len(self.live) - 1
        return free + sum(max(self.users[v], default=0) < passed[0] for v in self.live) >= len(passed)

    def _register(self, number: int) -> str | None:
        """That which a vector would take; None where there is none."""
        node, vectors = self.nodes[number], self.graph.block.vectors
        staying = self.live - (set() if node.instruction.apart else self._dying(number))
        used = {self.registers[value] for value in staying}
        if node.copy is not None:
            return None if vectors[node.copy] in used else vectors[node.copy]
        return next((register for register in reversed(vectors) if register not in used), None)

    def _dying(self, number: int) -> set[int]:
        """The vectors that nobody needs after this instruction."""
        return {v for v in self.nodes[number].takes if len(self.users[v]) == 1 and v not in self.copies}

    def _issue(self, number: int) -> None:
        node, at, pipe = self.nodes[number], self._start(number), self._pipe(number)
        if number in self.passed:
            self.passed.remove(number)
        self.stored = at if node.access == "store" else self.stored
        if node.gives is not None and not self.most and (register := self._register(number)) is not None:
            self.registers[node.gives] = register
        self.live -= self._dying(number)
        if node.gives is not None and (self.graph.users[node.gives] or node.copy is not None):
            self.live.add(node.gives)
        self.ready.discard(number)
        for value in node.takes:
            self.users[value].discard(number)
        ready = at + node.timing.latency
        for later in self.needed_by[number]:
            self.waiting[later] -= 1
            if not self.waiting[later]:
                self.ready.add(later)
            fed = self.nodes[later]
            if number in fed.fed_by:
                self.fed_at[later] = max(self.fed_at[later], ready + self.offsets_ahead * (number in fed.offsets))
        self.busy[pipe] = at + node.timing.occupancy
        self.clock = at + (node.timing.occupancy if pipe == "alu" else 1)
