"""Whether a memory plan keeps every value until it is read, told by a replay of the program."""

from __future__ import annotations

from collections.abc import Iterable

from tosaic.backends.firmware.memory_plan import MemoryPlan, scratch_name, values_of_windows
from tosaic.backends.firmware.placing import ALIGNMENT, may_lie_over
from tosaic.backends.firmware.program import CallSequence, KernelCall
from tosaic.support.errors import BackendError


def check_plan(program: CallSequence, plan: MemoryPlan) -> None:
    """Replay the program on a map of who owns each byte: every read must find what was written.

    Raises:
        BackendError: the plan loses a value, leaves a memory, is misaligned, or a call overwrites what it reads.
    """
    _check_places(program, plan)
    replay = _Replay(program, plan)
    inputs = replay.within_arena(each.buffer for each in program.inputs)
    states = [state.buffer for state in program.states]
    replay.write(*states, *inputs)
    for number in range(len(program.calls) + 1):
        copies = program.copies_before(number)
        for copy in copies:
            replay.read(copy.target, *replay.within_arena([copy.source]))
        replay.write(*(copy.target for copy in copies))
        if number < len(program.calls):
            replay.call(number)
    for interface in program.outputs:
        replay.read(f"output {interface.name}", *replay.within_arena([interface.buffer]))
    replay.write(*inputs)
    replay.read("the next inference", *states)
    replay.read("the next window", *values_of_windows(program))


def _check_places(program: CallSequence, plan: MemoryPlan) -> None:
    """Every block lies in its memory, and where an NPU call has it at a fixed offset."""
    for name, place in plan.placements.items():
        memory = plan.memories[place.memory]
        if place.offset % ALIGNMENT or not 0 <= place.offset <= place.end <= memory.size:
            raise BackendError(f"the memory plan puts `{name}` at {place.offset:#x} of {memory.name}")
    for name, (number, address) in program.fixed_offsets.items():
        place, around = plan.placements[name], plan.placements[scratch_name(number)]
        if (place.memory, place.offset) != (around.memory, around.offset + address):
            raise BackendError(f"the memory plan puts `{name}` elsewhere than `{program.calls[number].name}` has it")


class _Replay:
    """Who owns each unit of `ALIGNMENT` bytes of the arena while the program runs."""

    def __init__(self, program: CallSequence, plan: MemoryPlan) -> None:
        self._program, self._plan = program, plan
        self._owners = [["" for _ in range(-(-used // ALIGNMENT))] for used in plan.used]
        self._arena = {name for name, buffer in program.buffers.items() if buffer.value is None and name != program.fed}

    def within_arena(self, buffers: Iterable[str]) -> list[str]:
        """What holds buffers, as far as that lies in the arena."""
        return [name for buffer in buffers if (name := self._program.storage(buffer)) in self._arena]

    def write(self, *names: str) -> None:
        for name in names:
            span = self._cells(name)
            self._owners[self._plan.placements[name].memory][span] = [name] * (span.stop - span.start)

    def read(self, user: str, *names: str) -> None:
        for name in names:
            owners = self._owners[self._plan.placements[name].memory]
            if any(owner != name for owner in owners[self._cells(name)]):
                raise BackendError(f"the memory plan loses `{name}` before `{user}` reads it")

    def call(self, number: int) -> None:
        """A call reads, and writes nothing over what it uses."""
        program, plan, call = self._program, self._plan, self._program.calls[number]
        self.read(call.name, *self.within_arena(call.reads))
        writes = [program.storage(name) for name in call.writes]
        scratch = [name for name in plan.placements if name.startswith(f"call {number} ")]
        fixed = {name for name, (of_call, _) in program.fixed_offsets.items() if of_call == number}
        together = {scratch_name(number), *fixed}
        used = {*map(program.storage, call.reads), *writes, *scratch}
        for index, name in enumerate((*writes, *scratch)):
            others = used - {name} - (self._harmless(number, index, name) if index < len(writes) else set())
            others -= together if name in together else set()
            if any(other in plan.placements and self._overlap(name, other) for other in others):
                raise BackendError(f"in `{call.name}`, `{name}` overlaps memory that the call uses")
        self.write(*scratch, *writes)

    def _harmless(self, number: int, index: int, name: str) -> set[str]:
        """What a call reads and its output number `index` may lie over."""
        call = self._program.calls[number]
        reads = [self._program.storage(read) for read in call.reads]
        shared = call.kernel.in_place if isinstance(call, KernelCall) else ()
        at = self._plan.placements[name].offset
        over = {reads[pair.input]: pair.lead for pair in shared if pair.output == index}
        return {
            old
            for old, lead in over.items()
            if old in self._arena
            and reads.count(old) == 1
            and may_lie_over(lead, self._plan.placements[old].offset, at)
        }

    def _cells(self, name: str) -> slice:
        place = self._plan.placements[name]
        return slice(place.offset // ALIGNMENT, -(-place.end // ALIGNMENT))

    def _overlap(self, a: str, b: str) -> bool:
        one, other = self._plan.placements[a], self._plan.placements[b]
        return one.memory == other.memory and one.offset < other.end and other.offset < one.end
