"""About what a program takes, told while it is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tosaic.backends.cortex_m.program.block_cycles import cycles_of
from tosaic.backends.cortex_m.program.ops import OPS
from tosaic.backends.cortex_m.program.rewriting import accesses, parts_of
from tosaic.backends.cortex_m.program.tree import Assign, Buffer, Let, Op, Reduce
from tosaic.backends.simulators.cycle_model import decoder
from tosaic.backends.target import Pipeline

_FREE, _FREE_LOW = 10, 5
"""Registers that C has for values beside pointers and counters, and those that instructions of 16 bits reach."""


class Tally:
    """Instructions and cycles, each statement as often as what is around it says.

    Attributes:
        instructions: about how many are executed.
        cycles: about how many they take; of a core without timings, the instructions.
        held: numbers that live in general registers.
        load: cycles of a load.
    """

    def __init__(self, buffers: Mapping[str, Buffer], pipeline: Pipeline | None, *, baseline: bool) -> None:
        self._buffers, self._pipeline = buffers, pipeline
        self.instructions, self.cycles, self._times = 0.0, 0.0, 1.0
        self._read, self.held, self._free = set[str](), 0, _FREE_LOW if baseline else _FREE
        self.load = decoder(pipeline)("ldr", "r0, [r1]", 2).timing.occupancy if pipeline else 1

    def took(self, instructions: float, cycles: float) -> None:
        """What a statement takes."""
        self.instructions += self._times * instructions
        self.cycles += self._times * cycles

    def times_over(self, times: float, printed: Callable[[], list[str]]) -> list[str]:
        """What a loop, or a branch, holds, which is executed so many times as often."""
        before, self._times = self._times, self._times * times
        self._read.clear()
        lines = printed()
        self._times = before
        self._read.clear()
        return lines

    def assembled(self, lines: Sequence[str], pointers: int) -> None:
        """Take in a block of assembly, and the pointers that it is given."""
        cycles = cycles_of(lines, self._pipeline) if self._pipeline else len(lines)
        self.took(len(lines) + pointers, cycles + pointers)

    def count(self, s: Assign | Reduce | Let) -> None:
        """Take in what computes a number."""
        read = {str(a) for a in accesses(s.value) if not self._buffers[a.buffer].in_registers}
        written = () if isinstance(s, Let) else (s.target,)
        memory = len(read - self._read) + sum(not self._buffers[a.buffer].in_registers for a in written)
        self._read |= read - {*map(str, written)}
        work = sum(
            OPS[part.name].instructions for part in parts_of(s.value) if isinstance(part, Op) and part.name in OPS
        )
        computed = max(1 - memory, work + isinstance(s, Reduce))
        values = sum(self._buffers[a.buffer].in_registers for a in (*accesses(s.value), *written))
        stacked = values * max(0.0, 1 - self._free / max(1, self.held))
        self.took(memory + computed + stacked, (memory + stacked) * self.load + computed)
