"""Issue of cores without vectors: in order, one instruction a cycle or several on pipes of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline


def in_order_cycles(sequence: Iterable[Instruction], pipeline: Pipeline) -> int:
    """Cycles from the issue of the first instruction until one after the last can issue."""
    ready: dict[str, int] = {}
    pipes, used = dict(pipeline.pipes), Counter[str]()
    cycle, free, room = 0, 0, pipeline.width
    previous: Instruction | None = None
    for instruction in sequence:
        timing = instruction.timing
        if timing.pipe == "none":
            continue
        taken = max((ready.get(register, 0) for register in instruction.reads), default=0)
        alone = timing.pipe == "system" or timing.occupancy > 1
        joins = room > 0 and taken <= cycle and used[timing.pipe] < pipes.get(timing.pipe, 1)
        if not joins or (alone and used):
            cycle, room = max(taken, free), pipeline.width
            used.clear()
        saved = pipeline.chained if _chained(previous, instruction) else 0
        used[timing.pipe] += 1
        room = 0 if alone else room - 1
        free = max(free, cycle + max(1, timing.occupancy - saved))
        for register in instruction.writes:
            ready[register] = cycle + max(1, timing.latency - saved)
        previous = instruction
    return free


def _chained(previous: Instruction | None, load: Instruction) -> bool:
    """Whether a load stands right behind a load or store whose result is none of its operands."""
    if previous is None or load.timing.pipe != "load" or previous.timing.pipe not in ("load", "store"):
        return False
    return not set(previous.writes) & set(load.reads[1:])
