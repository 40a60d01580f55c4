"""The static memory plan: every tensor and every call's working memory at a fixed address, sharing space over time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from tosaic.backends.firmware.program import FAST_REGION, SCRATCH_REGION, KernelCall, Program
from tosaic.backends.target import Memory, Target
from tosaic.support.errors import BackendError, OutOfMemoryError

ALIGNMENT = 16
"""Bytes; what kernels, the NPU's base pointers and cache lines ask for."""

_CLIMB_BUDGET = 2_000_000
"""Comparisons of two blocks that hill climbing may spend."""
_CLIMB_ROUNDS, _OTHER_ROUNDS = 600, 100
"""From the order that begins best, and from each other one where that leads to no end."""
_UNLIMITED = 1 << 40


@dataclass(frozen=True)
class Block:
    """`size` bytes that are in use from call `first` to call `last`, both included; -1 is before the first call.

    Args:
        memories: how many of the target's arena memories, fastest first, may hold it.
        waits: cycles that the core waits for it in each of them; empty where nobody has counted.
    """

    name: str
    size: int
    first: int
    last: int
    memories: int
    waits: tuple[float, ...] = ()

    def meets(self, other: Block) -> bool:
        return self.first <= other.last and other.first <= self.last

    def cost(self, memory: int) -> float:
        """What it costs to lie in a memory: cycles, or else bytes that lie in no fast one."""
        return self.waits[memory] if self.waits else memory * self.size


@dataclass(frozen=True)
class Placement:
    """A block at byte `offset` of the arena's share in memory number `memory`."""

    block: Block
    memory: int
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.block.size


@dataclass(frozen=True)
class MemoryPlan:
    """Where everything is.

    Args:
        placements: by the name of a storage buffer, or `scratch_name` of a call.
        memories: the target's arena memories.
    """

    placements: Mapping[str, Placement]
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
    program: Program, target: Target, waits: Mapping[str, tuple[float, ...]] = MappingProxyType({})
) -> MemoryPlan:
    """The smallest plan found that keeps most bytes in the fastest memories, or that the core waits least for.

    Args:
        waits: by block the cycles that the core waits for it in each of the target's arena memories.

    Raises:
        OutOfMemoryError: it does not fit; the message names the worst call and the biggest users then.
    """
    blocks, leads = program_blocks(program, len(target.layout.arena)), overlaps(program)
    blocks = [replace(block, waits=waits.get(block.name, ())) for block in blocks]
    placed = _best(blocks, leads, [memory.size for memory in target.layout.arena])
    if placed is None:
        raise _out_of_memory(program, blocks, leads, target)
    return MemoryPlan(_with_homes(program, placed), target.layout.arena)


def plan_apart(program: Program, memory: Memory) -> MemoryPlan:
    """Every block in a place of its own."""
    placed, end = list[Placement](), 0
    for block in program_blocks(program, 1):
        placed.append(Placement(block, 0, end))
        end = aligned(end + block.size)
    return MemoryPlan(_with_homes(program, placed), (memory,))


def _with_homes(program: Program, placed: Sequence[Placement]) -> dict[str, Placement]:
    """The placements by name, with those of buffers that lie in the working memory of calls."""
    found, spans = {p.block.name: p for p in placed}, lifetimes(program)
    for name, (number, address) in program.homes.items():
        around = found[scratch_name(number)]
        first, last = spans[name]
        block = replace(around.block, name=name, size=program.buffers[name].size, first=first, last=last)
        found[name] = Placement(block, around.memory, around.offset + address)
    return dict(sorted(found.items()))


def fits(blocks: Sequence[Block], leads: Leads, size: int) -> bool:
    """Whether a plan of blocks in one memory of `size` bytes is found; `leads` may tell of other blocks, too."""
    names = {block.name for block in blocks}
    own = {pair: lead for pair, lead in leads.items() if names.issuperset(pair)}
    return _lower_bound(blocks, own) <= size and _best(blocks, own, [size], enough=size) is not None


def scratch_room(program: Program) -> list[int]:
    """For each call the bytes of working memory that it may take before more is live than in the program as it is."""
    blocks, leads = program_blocks(program, 1), overlaps(program)
    live = [live_bytes(blocks, leads, call) for call in range(len(program.calls))]
    own = {block.name: block.size for block in blocks}
    return [max(live) - here + own.get(scratch_name(call), 0) for call, here in enumerate(live)]


def program_blocks(program: Program, memories: int) -> list[Block]:
    """All blocks of a program; a call's working memory is one with the buffers that lie in it."""
    spans, homes = lifetimes(program), program.homes
    blocks = [
        Block(name, program.buffers[name].size, first, last, memories)
        for name, (first, last) in spans.items()
        if name not in homes
    ]
    for number, call in enumerate(program.calls):
        if isinstance(call, KernelCall):
            sizes = {SCRATCH_REGION: call.kernel.scratch_bytes}
        else:
            sizes = {SCRATCH_REGION: call.scratch_bytes, FAST_REGION: call.fast_bytes, **program.port_regions(call)}
        inside = [spans[name] for name, (home, _) in homes.items() if home == number]
        for region, size in sizes.items():
            if size:
                allowed = 1 if region == FAST_REGION else memories
                moments = [number, *(moment for span in inside if region == SCRATCH_REGION for moment in span)]
                blocks.append(Block(scratch_name(number, region), size, min(moments), max(moments), allowed))
    stay = set(_kept_for_windows(program))
    return [replace(block, first=-1, last=len(program.calls)) if block.name in stay else block for block in blocks]


def _kept_for_windows(program: Program) -> list[str]:
    """What the first call goes on with when a window moves on: its working memory and its results."""
    return [scratch_name(0), *map(program.storage, program.calls[0].writes)] if program.hop_rows else []


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
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
    copied = [name for copy in program.copies for name in (copy.source, copy.target)]
    for name in (*(each.buffer for each in (*program.outputs, *program.states)), *copied):
        touch(name, len(program.calls))
    return spans


Leads = Mapping[tuple[str, str], int | None]
"""By the names of two blocks, a call's input and its output, how the output may lie over the input; see `Overlap`."""


def overlaps(program: Program) -> dict[tuple[str, str], int | None]:
    """The inputs that die in the call that writes an output, where that may lie over them."""
    spans = {name: span for name, span in lifetimes(program).items() if name not in program.homes}
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


Order = Callable[[Block], tuple]

_ORDERS: tuple[Order, ...] = (
    lambda block: (-block.size, block.first, block.name),
    lambda block: (-block.size * (block.last - block.first + 1), block.first, block.name),
    lambda block: (block.first, -block.size, block.name),
    lambda block: (block.first - block.last, -block.size, block.name),
)


def _best(blocks: Sequence[Block], leads: Leads, capacities: Sequence[int], enough: int = 0) -> list[Placement] | None:
    """The smallest plan found, or the first of `enough` bytes or less; None where none fits."""
    # Blocks that few memories may hold go first, so that no other block takes their only place.
    candidates = [sorted(sorted(blocks, key=order), key=lambda block: block.memories) for order in _ORDERS]
    candidates += [_outputs_first(order, leads) for order in candidates] if any(leads.values()) else []
    if any(block.waits for block in blocks):
        candidates.insert(0, sorted(blocks, key=_by_waits))
    # An order that does not fit yet may be climbed from to one that does.
    for sizes in (capacities, [*capacities[:-1], _UNLIMITED]):
        directions = (False, True) if leads else (False,)
        fitted = [(order, down, first_fit(order, sizes, leads, down)) for down in directions for order in candidates]
        tries = [_Try(_score(placed), order, down, placed) for order, down, placed in fitted if placed is not None]
        if tries:
            bound = 0, max(enough, _lower_bound(blocks, leads))
            first, *others = sorted(tries, key=_by_score)
            best = _climb(first, sizes, leads, bound, _CLIMB_ROUNDS)
            for other in others:
                if best.score > bound:
                    best = min(best, _climb(other, sizes, leads, bound, _OTHER_ROUNDS), key=_by_score)
            return best.placed if all(p.end <= capacities[p.memory] for p in best.placed) else None
    return None


def _by_waits(block: Block) -> tuple[int, float, str]:
    """First what the fastest memory saves most with, for its bytes and the calls for which it takes them."""
    saved = block.cost(block.memories - 1) - block.cost(0)
    return block.memories, -saved / (max(1, block.size) * (block.last - block.first + 1)), block.name


class _Try(NamedTuple):
    """Blocks in an order, and where they lie then, counted from the top `down` or from the bottom up."""

    score: tuple[float, int]
    order: Sequence[Block]
    down: bool
    placed: list[Placement]


def _by_score(one: _Try) -> tuple[float, int]:
    return one.score


def _outputs_first(order: Sequence[Block], leads: Leads) -> list[Block]:
    """The order with each output that begins before an input in front of it, as it must lie below."""
    blocks = {block.name: block for block in order}
    below = {old: blocks[new] for (old, new), lead in leads.items() if lead}
    found: dict[Block, None] = {}
    for block in order:
        above, first = block, [block]
        while above.name in below and below[above.name] not in first:
            above = below[above.name]
            first.append(above)
        found |= dict.fromkeys(reversed(first))
    return list(found)


def first_fit(
    order: Iterable[Block], capacities: Sequence[int], leads: Leads, down: bool = False
) -> list[Placement] | None:
    """Each block in turn at the lowest free offset of the first memory with room; None where one has none.

    With `down` at the highest, below a top that is found so. Then an output that begins before its input, and is the
    input of the next, lies below it, however long the chain.
    """
    placed: list[Placement] = []
    for block in order:
        rivals = [p for p in placed if p.block.meets(block)]
        for memory in range(min(block.memories, len(capacities))):
            offset = _lowest(block, [p for p in rivals if p.memory == memory], leads, down)
            if offset + (aligned(block.size) if down else block.size) <= capacities[memory]:
                placed.append(Placement(block, memory, offset))
                break
        else:
            return None
    return _turned(placed) if down else placed


def _turned(placed: Sequence[Placement]) -> list[Placement]:
    """Placements whose offsets count from the top down, counted from the bottom up."""
    tops: dict[int, int] = {}
    for p in placed:
        tops[p.memory] = max(tops.get(p.memory, 0), aligned(p.end))
    return [replace(p, offset=tops[p.memory] + _address(p.block, p.offset, True)) for p in placed]


def _address(block: Block, offset: int, down: bool) -> int:
    """Where a block begins; offsets that count down from a top give addresses below 0."""
    return -(offset + aligned(block.size)) if down else offset


def _lowest(block: Block, rivals: Sequence[Placement], leads: Leads, down: bool) -> int:
    """The lowest offset at which a block harms no rival."""
    starts = {0}
    for rival in rivals:
        starts.add(aligned(rival.end))
        address = _address(rival.block, rival.offset, down)
        if (rival.block.name, block.name) in leads:
            address -= aligned(leads[rival.block.name, block.name] or 0)
        elif (block.name, rival.block.name) in leads:
            address += aligned(leads[block.name, rival.block.name] or 0)
        else:
            continue
        starts.add(_address(block, address, down))
    free = (at for at in sorted(starts) if at >= 0)
    return next(at for at in free if not any(_harms(block, at, rival, leads, down) for rival in rivals))


def _harms(block: Block, at: int, rival: Placement, leads: Leads, down: bool) -> bool:
    """Whether a block at an offset lies over what a rival still needs, or the other way round."""
    if at + block.size <= rival.offset or at >= aligned(rival.end):
        return False
    own, other = _address(block, at, down), _address(rival.block, rival.offset, down)
    pairs = {(rival.block.name, block.name): (other, own), (block.name, rival.block.name): (own, other)}
    return not any(may_lie_over(leads[pair], *offsets) for pair, offsets in pairs.items() if pair in leads)


def may_lie_over(lead: int | None, input_offset: int, output_offset: int) -> bool:
    """Whether a kernel's output may lie over its input so; see `Overlap`."""
    return output_offset == input_offset if lead is None else output_offset + lead <= input_offset


def aligned(offset: int) -> int:
    """The next multiple of the alignment of blocks."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _score(placed: Sequence[Placement]) -> tuple[float, int]:
    """Smaller is better: what slower memories cost, then the size of the arena."""
    ends: dict[int, int] = {}
    for p in placed:
        ends[p.memory] = max(ends.get(p.memory, 0), p.end)
    return sum(p.block.cost(p.memory) for p in placed), sum(ends.values())


def _climb(best: _Try, capacities: Sequence[int], leads: Leads, bound: tuple[float, int], rounds: int) -> _Try:
    """Put what lies highest, or what it has to share the memory with, elsewhere in the order and keep what is no worse,
    until the bound or the budget is reached."""
    rng, count = random.Random(0), len(best.order)
    for _ in range(min(rounds, _CLIMB_BUDGET // count**2) if count > 1 else 0):
        if best.score <= bound:
            break
        top = max(best.placed, key=lambda p: (p.memory, p.end)).block
        trial, near = list(best.order), [i for i, block in enumerate(best.order) if block.meets(top)]
        trial.insert(rng.randrange(count), trial.pop(rng.choice([best.order.index(top), rng.choice(near)])))
        placed = first_fit(trial, capacities, leads, best.down)
        if placed is not None and (score := _score(placed)) <= best.score:
            best = _Try(score, trial, best.down, placed)
    return best


def _lower_bound(blocks: Sequence[Block], leads: Leads) -> int:
    return max((live_bytes(blocks, leads, moment) for moment in {block.first for block in blocks}), default=0)


def live_bytes(blocks: Sequence[Block], leads: Leads, moment: int) -> int:
    """Bytes that must be there at a call, where each output lies over the input with which that saves most.

    All but one of the blocks, or of the pairs that lie over each other, end where another may begin.
    """
    live = {block.name: block for block in blocks if block.first <= moment <= block.last}
    saved = {
        (old, new): live[old].size + live[new].size - max((lead or 0) + live[old].size, live[new].size)
        for (old, new), lead in leads.items()
        if old in live and new in live and live[new].first == moment
    }
    sizes = {name: block.size for name, block in live.items()}
    for (old, new), bytes_ in sorted(saved.items(), key=lambda item: -item[1]):
        if bytes_ > 0 and old in sizes and new in sizes:
            sizes[f"{old} and {new}"] = sizes.pop(old) + sizes.pop(new) - bytes_
    spare = max((aligned(size) - size for size in sizes.values()), default=0)
    return sum(map(aligned, sizes.values())) - spare


def _out_of_memory(program: Program, blocks: Sequence[Block], leads: Leads, target: Target) -> OutOfMemoryError:
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


def check_plan(program: Program, plan: MemoryPlan) -> None:
    """Replay the program on a map of who owns each byte: every read must find what was written.

    Raises:
        BackendError: the plan loses a value, leaves a memory, is misaligned, or a call overwrites what it reads.
    """
    owners = [["" for _ in range(-(-used // ALIGNMENT))] for used in plan.used]

    def cells(name: str) -> slice:
        place = plan.placements[name]
        return slice(place.offset // ALIGNMENT, -(-place.end // ALIGNMENT))

    def write(name: str) -> None:
        span = cells(name)
        owners[plan.placements[name].memory][span] = [name] * (span.stop - span.start)

    def read(name: str, user: str) -> None:
        if any(owner != name for owner in owners[plan.placements[name].memory][cells(name)]):
            raise BackendError(f"the memory plan loses `{name}` before `{user}` reads it")

    for name, place in plan.placements.items():
        memory = plan.memories[place.memory]
        if place.offset % ALIGNMENT or not 0 <= place.offset <= place.end <= memory.size:
            raise BackendError(f"the memory plan puts `{name}` at {place.offset:#x} of {memory.name}")
    for name, (number, address) in program.homes.items():
        place, around = plan.placements[name], plan.placements[scratch_name(number)]
        if (place.memory, place.offset) != (around.memory, around.offset + address):
            raise BackendError(f"the memory plan puts `{name}` elsewhere than `{program.calls[number].name}` has it")
    arena = {name for name, buffer in program.buffers.items() if buffer.value is None and name != program.fed}
    inputs = [name for each in program.inputs if (name := program.storage(each.buffer)) in arena]
    states = [state.buffer for state in program.states]
    for name in (*states, *inputs):
        write(name)
    for number, call in enumerate(program.calls):
        reads = [program.storage(name) for name in call.reads]
        writes = [program.storage(name) for name in call.writes]
        scratch = [name for name in plan.placements if name.startswith(f"call {number} ")]
        shared = call.kernel.in_place if isinstance(call, KernelCall) else ()
        together = {scratch_name(number), *(name for name, (home, _) in program.homes.items() if home == number)}
        for name in reads:
            if name in arena:
                read(name, call.name)
        for index, name in enumerate((*writes, *scratch)):
            over = {reads[pair.input]: pair.lead for pair in shared if pair.output == index and index < len(writes)}
            at = plan.placements[name].offset
            harmless = {
                old
                for old, lead in over.items()
                if old in arena and reads.count(old) == 1 and may_lie_over(lead, plan.placements[old].offset, at)
            }
            others = {*reads, *writes, *scratch} - {name} - harmless
            others -= together if name in together else set()
            if any(other in plan.placements and _overlap(plan, name, other) for other in others):
                raise BackendError(f"in `{call.name}`, `{name}` overlaps memory that the call uses")
        for name in (*scratch, *writes):
            write(name)
    for copy in program.copies:
        if program.storage(copy.source) in arena:
            read(program.storage(copy.source), copy.target)
    for copy in program.copies:
        write(copy.target)
    for interface in program.outputs:
        if program.storage(interface.buffer) in arena:
            read(program.storage(interface.buffer), f"output {interface.name}")
    for name in inputs:
        write(name)
    for name in states:
        read(name, "the next inference")
    for name in _kept_for_windows(program):
        read(name, "the next window")


def _overlap(plan: MemoryPlan, a: str, b: str) -> bool:
    one, other = plan.placements[a], plan.placements[b]
    return one.memory == other.memory and one.offset < other.end and other.offset < one.end
