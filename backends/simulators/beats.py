"""Issue of cores with vectors: an MVE instruction holds its pipe for two beats, and instructions on different pipes
overlap. Pairs issue together: of 16-bit instructions, or, where the core is two wide, of any on pipes that are free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline

_NEVER = -(2**30)
"""A cycle long before the first."""


def beats_cycles(sequence: Iterable[Instruction], pipeline: Pipeline) -> int:
    """Cycles from the issue of the first instruction until one after the last can issue, all results ready before."""
    board = Scoreboard(pipeline)
    board.issue(sequence)
    return board.clock


class Scoreboard:
    """What later instructions wait for: pipes, results, and the cycle in which the next one issues at the earliest."""

    __slots__ = ("busy", "clock", "latest", "pipeline", "previous", "ready", "storable", "stored")

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.ready: dict[str, int] = {}
        self.storable: dict[str, int] = {}  # when an interleaving store can take it
        self.busy = {"alu": 0, "load-store": 0, "int": 0, "mul": 0, "system": 0}
        self.clock = self.latest = 0
        self.stored = _NEVER
        self.previous: Instruction | None = None

    def copy(self) -> Scoreboard:
        """The same, to go on from twice."""
        other = Scoreboard(self.pipeline)
        other.previous, other.stored = self.previous, self.stored
        other.ready, other.storable, other.busy = self.ready.copy(), self.storable.copy(), self.busy.copy()
        other.clock, other.latest = self.clock, self.latest
        return other

    def like(self, other: Scoreboard) -> bool:
        """Whether later instructions issue as behind another one, only earlier or later, if both issued the same."""
        late, here, there = other.latest - self.latest, self.busy, other.busy
        if self.previous is not other.previous or self.clock + late != other.clock:
            return False
        if (here["int"] <= here["mul"]) != (there["int"] <= there["mul"]):
            return False
        store, offsets = self.pipeline.store_to_load, self.pipeline.offsets_ahead
        return (
            self._waits(here, there, late, 0)
            and self._waits({"": self.stored}, {"": other.stored}, late, store + 1)
            and self._waits(self.ready, other.ready, late, offsets)
            and self._waits(self.storable, other.storable, late, 0)
        )

    def _waits(self, here: Mapping[str, int], there: Mapping[str, int], late: int, ahead: int) -> bool:
        """Whether what is yet to come, within some cycles, comes as there."""
        past = self.latest - ahead
        for name, at in here.items():
            if there[name] != at + late and (at > past or there[name] > past + late):
                return False
        return True

    def issue(self, sequence: Iterable[Instruction]) -> None:
        """Issues instructions, in their order."""
        pipeline, ready, storable, busy = self.pipeline, self.ready, self.storable, self.busy
        clock, stored, previous, latest = self.clock, self.stored, self.previous, self.latest
        for instruction in sequence:
            timing, reads, writes, _, _, _, access, offsets = instruction
            pipe = timing.pipe
            if pipe == "none":
                previous, latest = None, clock
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
                and operands_ready <= latest
                and (busy[pipe] <= latest or pipe == "alu")
                and (_differ(previous, instruction) if pipeline.width > 1 else _pair(previous, instruction))
                and not any(register in previous.writes for register in reads)
            )
            issue = latest if together else max(clock, operands_ready, busy[pipe])
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
            latest = issue
        self.clock, self.stored, self.previous, self.latest = clock, stored, previous, latest


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
