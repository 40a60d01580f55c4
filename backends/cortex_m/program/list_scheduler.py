"""The list scheduler: blocks of instructions on named registers, ordered for an in-order core.

A vector that an instruction writes without reading it is a new value and gets any free register; every other name
stands for one register. Loads that open the iteration may be hoisted into the iteration before, so that no loop waits
for them; or all code that opens it is, and the end of an iteration runs beside the beginning of the next.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial

from tosaic.backends.cortex_m.program.block import VARIABLE, InstructionBlock, encoded_bytes
from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.cortex_m.program.idle_slots import IdleSlots, Order, Registers, least_issue_cycles
from tosaic.backends.simulators.cycle_model import decoder, issue_cycles
from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

_REGISTER = re.compile(r"\b[qr]\d+\b")
# Up to so many instructions, all orders that fit the registers are compared; beyond, the first three.
_WORTH_COMPARING = 240
_PRIORITIES = ("busiest", "loads", "free", "longest", "first")
"""What goes first of what can start at once: what the busiest pipe waits for; loads before that, which `free` lets pass
vectors of sums; what others wait for longest; what stands first. All are compared."""
_WINDOW = 48
"""How many of the instructions that stand next are chosen from."""
_NO_FIT = "the vectors of an iteration do not fit the registers"


@dataclass(frozen=True)
class Ordered:
    """A block in the order of execution: `entry` once before the loop, `iteration` in each iteration.

    `last` is an iteration that begins no other one.
    """

    entry: tuple[str, ...]
    iteration: tuple[str, ...]
    last: tuple[str, ...]


@lru_cache(maxsize=1024)
def ordered(
    block: InstructionBlock, pipeline: Pipeline | None, hoisted: int = 0, iterations: int = 1, *, filled: bool = True
) -> Ordered:
    """List scheduling on the core's timings.

    Lifetimes may interlock so that the registers do not hold them. Then fewer vectors live at a time; then each gets
    its register as it starts; then some registers are kept for what is under way; and then fewer loads are hoisted. Of
    a short iteration, the best of several such orders is taken; where there is none, what is given.

    Args:
        pipeline: timings; None keeps the order that is given.
        hoisted: how many of the loads that open the iteration are executed one iteration ahead, at most.
        iterations: of the loop; 1 of code that is none.
        filled: whether single instructions are moved to where nothing issues, which takes most of the time.

    Raises:
        BackendError: the vectors do not fit the registers.
    """
    found: BackendError | None = None
    for loads in range(hoisted, -1, -1):
        graph = Dependences(block, decoder(pipeline) if pipeline else None, loads)
        registers_of: dict[Order, Registers] = {}
        lived = dict[str, int]()
        for (most, spare), prefers in itertools.product(_attempts(len(block.vectors)), _PRIORITIES):
            enough = spare or (prefers == _PRIORITIES[0] and (most == 0 or not filled))
            if enough and registers_of:
                break
            if most and not spare and lived.get(prefers, most) < most:  # the order stays the same
                continue
            try:
                ordering = _Order(graph, most, spare, prefers, pipeline)
                order = ordering.run()
                lived[prefers] = ordering.lived
                registers_of.setdefault(order, allocated(graph, order) if most else ordering.registers)
            except BackendError as error:
                found = found or error.with_traceback(None)  # else it holds this frame, and all that called it
                continue
            if pipeline is None or (prefers == _PRIORITIES[-1] and len(order) > _WORTH_COMPARING):
                break
        if registers_of:
            order, registers = _best(graph, registers_of, pipeline, iterations, filled=filled)
            entry = _opened(block, pipeline, graph, filled=filled) if block.opening else graph.loads(registers)
            lines = graph.iteration(order, registers)
            last = [line for line, i in zip(lines, order, strict=True) if not graph.nodes[i].ahead]
            return Ordered(tuple(entry), lines, tuple(last))
    if pipeline is not None:
        return ordered(block, None)
    raise found or BackendError("there are no vector registers")


def _best(
    graph: Dependences,
    registers_of: Mapping[Order, Registers],
    pipeline: Pipeline | None,
    iterations: int,
    *,
    filled: bool,
) -> tuple[Order, Registers]:
    """Of orders with their registers, the best, with what is still idle in it `filled`."""
    first = next(iter(registers_of.items()))
    if pipeline is None:
        return first

    def cycles(found: tuple[Order, Registers]) -> int:
        return loop_cycles(graph.iteration(*found), pipeline, iterations)

    best = min(registers_of.items(), key=cycles)
    if pipeline.issue != "beats" or not filled:
        return best
    return min(best, IdleSlots(graph, pipeline, iterations, partial(allocated, graph)).filled(*best), key=cycles)


def _opened(block: InstructionBlock, pipeline: Pipeline | None, graph: Dependences, *, filled: bool) -> Sequence[str]:
    """The instructions of the opening that are executed before the loop."""
    registers = dict(zip(graph.crossing, block.vectors, strict=False))
    free = block.vectors[len(registers) :]
    opening = InstructionBlock(block.opening, {**block.registers, **registers}, free)
    return ordered(opening, pipeline, filled=filled).iteration


def cycles_of(code: Sequence[str], pipeline: Pipeline) -> int:
    """Cycles of instructions that are executed once."""
    return issue_cycles(_decoded(code, pipeline), pipeline)


@lru_cache(maxsize=1024)
def loop_cycles(iteration: tuple[str, ...], pipeline: Pipeline, iterations: int) -> int:
    """Cycles of a loop of so many iterations, all but the first of which cost the same."""
    decoded = _decoded(iteration, pipeline)
    once = issue_cycles(decoded, pipeline)
    return once + (iterations - 1) * (issue_cycles(decoded * 2, pipeline) - once) if iterations > 1 else once


@lru_cache(maxsize=1024)
def least_cycles(iteration: tuple[str, ...], pipeline: Pipeline) -> int:
    """Cycles that no order of an iteration takes less than."""
    return least_issue_cycles(_decoded(iteration, pipeline), pipeline)


def _decoded(code: Sequence[str], pipeline: Pipeline) -> list[Instruction]:
    """Instructions as the scoreboard sees them. Variables of C lie in registers that none of them names."""
    variables = dict.fromkeys(name for instruction in code for name in VARIABLE.findall(instruction))
    used = set(_REGISTER.findall(" ".join(code)))
    pools = {kind: itertools.cycle(_unused(kind, count, used)) for kind, count in (("q", 8), ("r", 13))}
    registers = {name: next(pools["q" if name[1] == "q" else "r"]) for name in variables}
    lines = [line.partition(" ") for instruction in code for line in instruction.split("\\n")]
    named = [(mnemonic, VARIABLE.sub(lambda name: registers[name[0]], operands)) for mnemonic, _, operands in lines]
    return [decoder(pipeline)(mnemonic, operands, encoded_bytes(mnemonic)) for mnemonic, operands in named]


def _unused(kind: str, count: int, used: Set[str]) -> list[str]:
    """The registers of a kind that no instruction names; all of them where there is none."""
    names = [f"{kind}{i}" for i in range(count)]
    return [name for name in names if name not in used] or names


def _attempts(vectors: int) -> Iterator[tuple[int, int]]:
    """How many vectors live at a time, and how many of them are kept for what is under way; 0 where each gets its
    register as it starts."""
    yield from ((most, 0) for most in range(vectors, max(0, vectors - 3), -1))
    yield 0, 0
    yield from ((vectors, spare) for spare in range(1, vectors - 1))


class _Order:
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
            raise BackendError(_NO_FIT)
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
                raise BackendError(_NO_FIT)
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


def allocated(graph: Dependences, order: Sequence[int]) -> dict[int, str]:
    """The register of each vector: lifetimes on a line, those of hoisted loads go round from the end to the start.

    Raises:
        BackendError: the lifetimes do not fit, though never too many overlap.
    """
    place = {number: at for at, number in enumerate(order)}
    births = {node.gives: place[i] for i, node in enumerate(graph.nodes) if node.gives is not None}
    ends_of = {i: at + graph.nodes[i].instruction.apart for i, at in place.items()}
    deaths = {v: max((ends_of[i] for i in users), default=births.get(v, 0)) for v, users in enumerate(graph.users)}
    again = {node.copy: place[i] for i, node in enumerate(graph.nodes) if node.copy is not None}
    copies = {node.gives: node.copy for node in graph.nodes if node.copy is not None}
    registers = {value: graph.block.vectors[value] for value in range(len(graph.crossing))}
    starts = dict.fromkeys(graph.block.vectors, 0)
    ends = {register: len(order) for register in graph.block.vectors}
    for value, register in registers.items():
        starts[register], ends[register] = deaths[value], again[value]
    # From the end to the start: most vectors live at the end, where hoisted loads meet the last ones of the iteration.
    for value in sorted(births, key=lambda value: (-deaths[value], -births[value])):
        if (copied := copies.get(value)) is not None:
            registers[value] = registers[copied]
            continue
        fitting = [r for r in starts if starts[r] <= births[value] and deaths[value] <= ends[r]]
        if not fitting:
            raise BackendError(_NO_FIT, why="their lifetimes interlock")
        registers[value] = min(fitting, key=lambda r: (-starts[r], ends[r]))
        ends[registers[value]] = births[value]
    return registers
