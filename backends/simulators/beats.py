"""Issue of cores with vectors: an MVE instruction holds its pipe for two beats, and instructions on different pipes
overlap. Pairs issue together: of 16-bit instructions, or, where the core is two wide, of any on pipes that are free."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline


def beats_cycles(sequence: Iterable[Instruction], pipeline: Pipeline, issues: list[int] | None = None) -> int:
    """Cycles from the issue of the first instruction until one after the last can issue, all results ready before.

    Args:
        issues: gets the cycle in which each instruction issues.
    """
    ready: dict[str, int] = {}
    storable: dict[str, int] = {}  # when an interleaving store can take it
    busy = {"alu": 0, "load-store": 0, "int": 0, "mul": 0, "system": 0}
    clock = 0
    stored = -math.inf
    previous: Instruction | None = None
    previous_issue = 0
    for instruction in sequence:
        timing, reads, writes, _, _, _, access, offsets = instruction
        pipe = timing.pipe
        if pipe == "none":
            previous = None
            if issues is not None:
                issues.append(clock)
            continue
        if pipe == "either":
            pipe = "int" if busy["int"] <= busy["mul"] else "mul"
        taken = storable if access == "interleaving-store" else ready
        operands_ready = 0
        for register in reads:
            at = taken.get(register, 0)
            if at > operands_ready:
                operands_ready = at
        if offsets in ready:
            operands_ready = max(operands_ready, ready[offsets] + pipeline.offsets_ahead)
        together = (
            previous is not None
            and operands_ready <= previous_issue
            and (busy[pipe] <= previous_issue or pipe == "alu")
            and (_differ(previous, instruction) if pipeline.width > 1 else _pair(previous, instruction))
            and not any(register in previous.writes for register in reads)
        )
        issue = previous_issue if together else max(clock, operands_ready, busy[pipe])
        if access == "load" and issue == stored + pipeline.store_to_load:
            issue, together = issue + 1, False
        elif access and access != "load":
            stored = issue
        busy[pipe] = max(busy[pipe], issue + timing.occupancy)
        computed = pipe in ("int", "mul")
        for register in writes:
            ready[register] = issue + timing.latency
            storable[register] = issue + max(timing.latency, pipeline.into_interleaving_store if computed else 0)
        clock = max(clock, issue + (timing.occupancy if pipe == "alu" else 1))
        previous = None if together else instruction
        previous_issue = issue
        if issues is not None:
            issues.append(issue)
    return clock


def _pair(first: Instruction, second: Instruction) -> bool:
    """Whether two 16-bit instructions issue together."""
    narrow = first.narrow and second.narrow and (first.pairs or second.pairs)
    return narrow and first.timing.occupancy == 1 and second.timing.occupancy == 1


def _differ(first: Instruction, second: Instruction) -> bool:
    """Whether two instructions find pipes that are free: there are two of scalar code, and one of each other kind."""
    scalar = first.timing.pipe == "alu" and second.timing.pipe == "alu"
    return (
        max(first.timing.occupancy, second.timing.occupancy) == 1 if scalar else first.timing.pipe != second.timing.pipe
    )
