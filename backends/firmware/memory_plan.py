"""The static memory plan: every tensor and every call's working memory at a fixed address, sharing space over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tosaic.backends.firmware.placing import (
    Leads,
    LiveBlock,
    PlacedBlock,
    aligned,
    best_placements,
    live_bytes,
    lower_bound,
)
from tosaic.backends.firmware.program import FAST_REGION, SCRATCH_REGION, CallSequence, KernelCall
from tosaic.backends.target import Memory, Target
from tosaic.support.errors import OutOfMemoryError


@dataclass(frozen=True)
class MemoryPlan:
    """Where everything is.

    Args:
        placements: by the name of a storage buffer, or `scratch_name` of a call.
        memories: the target's arena memories.
    """

    placements: Mapping[str, PlacedBlock]
    memories: tuple[Memory, ...]

    @property
    def used(self) -> tuple[int, ...]:
        """Bytes used of each memory."""
        return tuple(
            max((p.end for p in self.placements.values() if p.memory == number), default=0)
            for number in range(len(self.memories))
        )

    @property
    def arena_bytes(self) -> int:
        return sum(self.used)

    def table(self) -> str:
        """The plan as text, one block a line, by memory and offset."""
        rows = sorted(self.placements.values(), key=lambda p: (p.memory, p.offset, p.block.first))
        width = max((len(row.block.name) for row in rows), default=0)
        return "\n".join(
            f"{self.memories[row.memory].name:8} {row.offset:#10x} .. {row.end:#10x}  {row.block.name:{width}}  "
            f"{row.block.size:>9} B  calls {row.block.first} .. {row.block.last}"
            for row in rows
        )


def scratch_name(call: int, region: int = SCRATCH_REGION) -> str:
    """The block of a call's working memory; NPU calls have one for each region that is no buffer."""
    return f"call {call} region {region}"


def plan_memory(
    program: CallSequence, target: Target, waits: Mapping[str, tuple[float, ...]] = MappingProxyType({})
) -> MemoryPlan:
    """The smallest plan found that keeps most bytes in the fastest memories, or that the core waits least for.

    Args:
        waits: by block the cycles that the core waits for it in each of the target's arena memories.

    Raises:
        OutOfMemoryError: it does not fit; the message names the worst call and the biggest users then.
    """
    blocks, leads = program_blocks(program, len(target.layout.arena)), overlaps(program)
    blocks = [replace(block, waits=waits.get(block.name, ())) for block in blocks]
    placed = best_placements(blocks, leads, [memory.size for memory in target.layout.arena])
    if placed is None:
        raise _out_of_memory(program, blocks, leads, target)
    return MemoryPlan(_with_fixed_offsets(program, placed), target.layout.arena)


def plan_apart(program: CallSequence, memory: Memory) -> MemoryPlan:
    """Every block in a place of its own."""
    placed, end = list[PlacedBlock](), 0
    for block in program_blocks(program, 1):
        placed.append(PlacedBlock(block, 0, end))
        end = aligned(end + block.size)
    return MemoryPlan(_with_fixed_offsets(program, placed), (memory,))


def _with_fixed_offsets(program: CallSequence, placed: Sequence[PlacedBlock]) -> dict[str, PlacedBlock]:
    """The placements by name, with those of buffers that lie in the working memory of calls."""
    found, spans = {p.block.name: p for p in placed}, lifetimes(program)
    for name, (number, address) in program.fixed_offsets.items():
        around = found[scratch_name(number)]
        first, last = spans[name]
        block = replace(around.block, name=name, size=program.buffers[name].size, first=first, last=last)
        found[name] = PlacedBlock(block, around.memory, around.offset + address)
    return dict(sorted(found.items()))


def fits(blocks: Sequence[LiveBlock], leads: Leads, size: int) -> bool:
    """Whether a plan of blocks in one memory of `size` bytes is found; `leads` may tell of other blocks, too."""
    names = {block.name for block in blocks}
    own = {pair: lead for pair, lead in leads.items() if names.issuperset(pair)}
    return lower_bound(blocks, own) <= size and best_placements(blocks, own, [size], enough=size) is not None


def scratch_room(program: CallSequence) -> list[int]:
    """For each call the bytes of working memory that it may take before more is live than in the program as it is."""
    blocks, leads = program_blocks(program, 1), overlaps(program)
    live = [live_bytes(blocks, leads, call) for call in range(len(program.calls))]
    own = {block.name: block.size for block in blocks}
    return [max(live) - here + own.get(scratch_name(call), 0) for call, here in enumerate(live)]


def program_blocks(program: CallSequence, memories: int) -> list[LiveBlock]:
    """All blocks of a program; a call's working memory is one with the buffers that lie in it."""
    spans, fixed = lifetimes(program), program.fixed_offsets
    blocks = [
        LiveBlock(name, program.buffers[name].size, first, last, memories)
        for name, (first, last) in spans.items()
        if name not in fixed
    ]
    for number, call in enumerate(program.calls):
        if isinstance(call, KernelCall):
            sizes = {SCRATCH_REGION: call.kernel.scratch_bytes}
        else:
            sizes = {SCRATCH_REGION: call.scratch_bytes, FAST_REGION: call.fast_bytes, **program.port_regions(call)}
        inside = [spans[name] for name, (call, _) in fixed.items() if call == number]
        for region, size in sizes.items():
            if size:
                allowed = 1 if region == FAST_REGION else memories
                moments = [number, *(moment for span in inside if region == SCRATCH_REGION for moment in span)]
                blocks.append(LiveBlock(scratch_name(number, region), size, min(moments), max(moments), allowed))
    stay = set(values_of_windows(program))
    return [replace(block, first=-1, last=len(program.calls)) if block.name in stay else block for block in blocks]


def values_of_windows(program: CallSequence) -> list[str]:
    """What the first call goes on with when a window moves on: its working memory and its results."""
    return [scratch_name(0), *map(program.storage, program.calls[0].writes)] if program.hop_rows else []


def lifetimes(program: CallSequence) -> dict[str, tuple[int, int]]:
    """First and last call that touches each storage buffer which is no constant."""
    spans: dict[str, tuple[int, int]] = {}
    fed = program.fed

    def touch(name: str, call: int) -> None:
        storage = program.storage(name)
        if program.buffers[storage].value is None and storage != fed:
            first, last = spans.get(storage, (call, call))
            spans[storage] = (min(first, call), max(last, call))

    for interface in (*program.inputs, *program.states):
        touch(interface.buffer, -1)
    for number, call in enumerate(program.calls):
        for name in (*call.reads, *call.writes):
            touch(name, number)
    for copy in program.copies:
        touch(copy.source, copy.before)
        touch(copy.target, copy.before)
    for interface in (*program.outputs, *program.states):
        touch(interface.buffer, len(program.calls))
    spans |= {name: (-1, len(program.calls)) for name in values_of_windows(program) if name in spans}
    return spans


def overlaps(program: CallSequence) -> dict[tuple[str, str], int | None]:
    """The inputs that die in the call that writes an output, where that may lie over them."""
    spans = {name: span for name, span in lifetimes(program).items() if name not in program.fixed_offsets}
    found: dict[tuple[str, str], int | None] = {}
    for number, call in enumerate(program.calls):
        if not isinstance(call, KernelCall):
            continue
        reads = [program.storage(name) for name in call.inputs]
        for shared in call.kernel.in_place:
            old, new = reads[shared.input], program.storage(call.outputs[shared.output])
            dies = old in spans and spans[old][1] == number and reads.count(old) == 1
            fits = shared.lead is not None or program.buffers[new].size <= program.buffers[old].size
            if dies and fits and new in spans and spans[new][0] == number:
                found[old, new] = shared.lead
    return found


def _out_of_memory(
    program: CallSequence, blocks: Sequence[LiveBlock], leads: Leads, target: Target
) -> OutOfMemoryError:
    peak = max({block.first for block in blocks}, key=lambda moment: (live_bytes(blocks, leads, moment), -moment))
    users = sorted((b for b in blocks if b.first <= peak <= b.last), key=lambda block: (-block.size, block.name))
    listed = "; ".join(f"{block.name}: {block.size} B" for block in users[:5])
    room = ", ".join(f"{memory.name} {memory.size} B" for memory in target.layout.arena)
    return OutOfMemoryError(
        f"the model needs more memory than `{target.name}` has for its arena",
        where=program.calls[peak].where if 0 <= peak < len(program.calls) else "",
        why=f"call {peak} needs {live_bytes(blocks, leads, peak)} B at once, and there is {room}; "
        f"biggest users: {listed}",
        hint="a larger arena, a target with more memory, or smaller activations",
    )
