"""The list scheduler: blocks of instructions on named registers, ordered for an in-order core.

A vector that an instruction writes without reading it is a new value and gets any free register; every other name
stands for one register. Loads that open the iteration may be hoisted into the iteration before, so that no loop waits
for them; or all code that opens it is, and the end of an iteration runs beside the beginning of the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from tosaic.backends.cortex_m.program.block import InstructionBlock
from tosaic.backends.cortex_m.program.block_cycles import loop_cycles
from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.cortex_m.program.idle_slots import IdleSlots, Order, Registers
from tosaic.backends.cortex_m.program.issue_order import NO_FIT, IssueOrder
from tosaic.backends.simulators.cycle_model import decoder
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

# Up to so many instructions, all orders that fit the registers are compared; beyond, the first three.
_WORTH_COMPARING = 240
_PRIORITIES = ("busiest", "loads", "free", "longest", "first")
"""What goes first of what can start at once: what the busiest pipe waits for; loads before that, which `free` lets pass
vectors of sums; what others wait for longest; what stands first. All are compared."""


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
                ordering = IssueOrder(graph, most, spare, prefers, pipeline)
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


def _attempts(vectors: int) -> Iterator[tuple[int, int]]:
    """How many vectors live at a time, and how many of them are kept for what is under way; 0 where each gets its
    register as it starts."""
    yield from ((most, 0) for most in range(vectors, max(0, vectors - 3), -1))
    yield 0, 0
    yield from ((vectors, spare) for spare in range(1, vectors - 1))


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
            raise BackendError(NO_FIT, why="their lifetimes interlock")
        registers[value] = min(fitting, key=lambda r: (-starts[r], ends[r]))
        ends[registers[value]] = births[value]
    return registers
