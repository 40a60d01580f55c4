"""Where blocks lie in memories: first fit in many orders, improved by climbing."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

_CLIMB_BUDGET = 2_000_000
"""Comparisons of two blocks that hill climbing may spend."""
_CLIMB_ROUNDS, _OTHER_ROUNDS = 600, 100
"""From the order that begins best, and from each other one where that leads to no end."""


ALIGNMENT = 16
"""Bytes; what kernels, the NPU's base pointers and cache lines ask for."""
_UNLIMITED = 1 << 40


@dataclass(frozen=True)
class LiveBlock:
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

    def cost(self, memory: int) -> float:
        """What it costs to lie in a memory: cycles, or else bytes that lie in no fast one."""
        return self.waits[memory] if self.waits else memory * self.size


@dataclass(frozen=True)
class PlacedBlock:
    """A block at byte `offset` of the arena's share in memory number `memory`."""

    block: LiveBlock
    memory: int
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.block.size


Leads = Mapping[tuple[str, str], int | None]
"""By the names of two blocks, a call's input and its output, how the output may lie over the input; see `Overlap`."""

Meetings = Mapping[str, Sequence[str]]
"""By the name of a block, the names of those that are in use at a call at which it is, its own among them."""

Order = Callable[[LiveBlock], tuple]
_ORDERS: tuple[Order, ...] = (
    lambda block: (-block.size, block.first, block.name),
    lambda block: (-block.size * (block.last - block.first + 1), block.first, block.name),
    lambda block: (block.first, -block.size, block.name),
    lambda block: (block.first - block.last, -block.size, block.name),
)


def best_placements(
    blocks: Sequence[LiveBlock], leads: Leads, capacities: Sequence[int], enough: int = 0
) -> Sequence[PlacedBlock] | None:
    """The smallest plan found, or the first of `enough` bytes or less; None where none fits."""
    return _best_placements(tuple(blocks), tuple(leads.items()), tuple(capacities), enough)


@lru_cache(maxsize=16)
def _best_placements(
    blocks: tuple[LiveBlock, ...],
    pairs: tuple[tuple[tuple[str, str], int | None], ...],
    capacities: tuple[int, ...],
    enough: int,
) -> tuple[PlacedBlock, ...] | None:
    leads = dict(pairs)
    # Blocks that few memories may hold go first, so that no other block takes their only place.
    candidates = [sorted(sorted(blocks, key=order), key=lambda block: block.memories) for order in _ORDERS]
    candidates += [_outputs_first(order, leads) for order in candidates] if any(leads.values()) else []
    meetings = _meetings(blocks)
    if any(block.waits for block in blocks):
        candidates.insert(0, sorted(blocks, key=_by_waits))
    # An order that does not fit yet may be climbed from to one that does.
    for sizes in (capacities, [*capacities[:-1], _UNLIMITED]):
        directions = (False, True) if leads else (False,)
        fitted = [
            (order, down, _first_fit(order, sizes, leads, meetings, down))
            for down in directions
            for order in candidates
        ]
        tries = [_Try(_score(placed), order, down, placed) for order, down, placed in fitted if placed is not None]
        if tries:
            bound = 0, max(enough, lower_bound(blocks, leads))
            first, *others = sorted(tries, key=_by_score)
            best = _climb(first, sizes, leads, meetings, bound, _CLIMB_ROUNDS)
            for other in others:
                if best.score > bound:
                    best = min(best, _climb(other, sizes, leads, meetings, bound, _OTHER_ROUNDS), key=_by_score)
            return tuple(best.placed) if all(p.end <= capacities[p.memory] for p in best.placed) else None
    return None


def _meetings(blocks: Sequence[LiveBlock]) -> Meetings:
    first, last = (np.array([each(block) for block in blocks]) for each in (lambda b: b.first, lambda b: b.last))
    names = np.array([block.name for block in blocks], object)
    return {block.name: names[(first <= block.last) & (last >= block.first)].tolist() for block in blocks}


def _by_waits(block: LiveBlock) -> tuple[int, float, str]:
    """First what the fastest memory saves most with, for its bytes and the calls for which it takes them."""
    saved = block.cost(block.memories - 1) - block.cost(0)
    return block.memories, -saved / (max(1, block.size) * (block.last - block.first + 1)), block.name


class _Try(NamedTuple):
    """Blocks in an order, and where they lie then, counted from the top `down` or from the bottom up."""

    score: tuple[float, int]
    order: Sequence[LiveBlock]
    down: bool
    placed: list[PlacedBlock]


def _by_score(one: _Try) -> tuple[float, int]:
    return one.score


def _outputs_first(order: Sequence[LiveBlock], leads: Leads) -> list[LiveBlock]:
    """The order with each output that begins before an input in front of it, as it must lie below."""
    blocks = {block.name: block for block in order}
    below = {old: blocks[new] for (old, new), lead in leads.items() if lead}
    found: dict[LiveBlock, None] = {}
    for block in order:
        above, first = block, [block]
        while above.name in below and below[above.name] not in first:
            above = below[above.name]
            first.append(above)
        found |= dict.fromkeys(reversed(first))
    return list(found)


def _first_fit(
    order: Iterable[LiveBlock],
    capacities: Sequence[int],
    leads: Leads,
    meetings: Meetings,
    down: bool,
    worst: tuple[float, int] = (math.inf, 0),
) -> list[PlacedBlock] | None:
    """Each block in turn at the lowest free offset of the first memory with room; None where one has none, or once the
    score of all together is known to be beyond the worst.

    With `down` at the highest, below a top that is found so. Then an output that begins before its input, and is the
    input of the next, lies below it, however long the chain.
    """
    placed: dict[str, PlacedBlock] = {}
    cost, ends = 0.0, [0] * len(capacities)
    spare = ALIGNMENT * len(capacities) if down else 0  # by which a memory may end lower once turned
    for block in order:
        rivals = [placed[name] for name in meetings[block.name] if name in placed]
        for memory in range(min(block.memories, len(capacities))):
            offset = _lowest(block, [p for p in rivals if p.memory == memory], leads, down)
            if offset + (aligned(block.size) if down else block.size) <= capacities[memory]:
                placed[block.name] = PlacedBlock(block, memory, offset)
                break
        else:
            return None
        cost, ends[memory] = cost + block.cost(memory), max(ends[memory], offset + block.size)
        if (cost, sum(ends) - spare) > worst:
            return None
    found = list(placed.values())
    return _turned(found) if down else found


def _turned(placed: Sequence[PlacedBlock]) -> list[PlacedBlock]:
    """Placements whose offsets count from the top down, counted from the bottom up."""
    tops: dict[int, int] = {}
    for p in placed:
        tops[p.memory] = max(tops.get(p.memory, 0), aligned(p.end))
    return [replace(p, offset=tops[p.memory] + _address(p.block, p.offset, True)) for p in placed]


def _address(block: LiveBlock, offset: int, down: bool) -> int:
    """Where a block begins; offsets that count down from a top give addresses below 0."""
    return -(offset + aligned(block.size)) if down else offset


def _lowest(block: LiveBlock, rivals: Sequence[PlacedBlock], leads: Leads, down: bool) -> int:
    """The lowest offset at which a block harms no rival."""
    led = [p for p in rivals if (p.block.name, block.name) in leads or (block.name, p.block.name) in leads]
    if not led:
        return _first_gap(block, rivals)
    apart = sorted((rival.offset, aligned(rival.end)) for rival in rivals if rival not in led)
    starts = {0, *(end for _, end in apart)}
    for rival in led:
        address = _address(rival.block, rival.offset, down)
        if (rival.block.name, block.name) in leads:
            address -= aligned(leads[rival.block.name, block.name] or 0)
        else:
            address += aligned(leads[block.name, rival.block.name] or 0)
        starts |= {aligned(rival.end), _address(block, address, down)}
    begins = [begin for begin, _ in apart]
    ends = list(accumulate((end for _, end in apart), max, initial=0))

    def is_free(at: int) -> bool:
        # The latest end of what begins before the block ends.
        return ends[bisect_left(begins, at + block.size)] <= at and not any(
            _harms(block, at, rival, leads, down) for rival in led
        )

    return next(at for at in sorted(starts) if at >= 0 and is_free(at))


def _first_gap(block: LiveBlock, rivals: Iterable[PlacedBlock]) -> int:
    """The lowest offset at which a block shares no byte with a rival."""
    at = 0
    for begin, end in sorted((rival.offset, rival.end) for rival in rivals):
        if begin >= at + block.size:
            break
        at = max(at, aligned(end))
    return at


def _harms(block: LiveBlock, at: int, rival: PlacedBlock, leads: Leads, down: bool) -> bool:
    """Whether an input or an output at an offset lies over what its rival still needs, or the other way round."""
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


def _score(placed: Sequence[PlacedBlock]) -> tuple[float, int]:
    """Smaller is better: what slower memories cost, then the size of the arena."""
    ends: dict[int, int] = {}
    for p in placed:
        ends[p.memory] = max(ends.get(p.memory, 0), p.end)
    return sum(p.block.cost(p.memory) for p in placed), sum(ends.values())


def _climb(
    best: _Try,
    capacities: Sequence[int],
    leads: Leads,
    meetings: Meetings,
    bound: tuple[float, int],
    rounds: int,
) -> _Try:
    """Place the requests in other orders, and keep what is no worse, until the bound or the budget is reached.

    What moves in the order is what lies highest, or what it has to share the memory with.
    """
    rng, count = random.Random(0), len(best.order)
    for _ in range(min(rounds, _CLIMB_BUDGET // count**2) if count > 1 else 0):
        if best.score <= bound:
            break
        top = max(best.placed, key=lambda p: (p.memory, p.end)).block
        met = set(meetings[top.name])
        trial, near = list(best.order), [i for i, block in enumerate(best.order) if block.name in met]
        trial.insert(rng.randrange(count), trial.pop(rng.choice([best.order.index(top), rng.choice(near)])))
        placed = _first_fit(trial, capacities, leads, meetings, best.down, best.score)
        if placed is not None and (score := _score(placed)) <= best.score:
            best = _Try(score, trial, best.down, placed)
    return best


def lower_bound(blocks: Sequence[LiveBlock], leads: Leads) -> int:
    return max((live_bytes(blocks, leads, moment) for moment in {block.first for block in blocks}), default=0)


def live_bytes(blocks: Sequence[LiveBlock], leads: Leads, moment: int) -> int:
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
