"""Pointers of a function whose calls name many places: to the part of each arena that they name most, and to small
constants. Such places take less code then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tosaic.backends.firmware.emit_header import arena_name
from tosaic.backends.firmware.memory_plan import MemoryPlan, scratch_name
from tosaic.backends.firmware.placing import PlacedBlock
from tosaic.backends.firmware.program import CallSequence, KernelCall

_REACH, _FAR = 1 << 12, 1 << 16
"""Bytes behind a pointer that one instruction of Armv7-M adds to it, or two."""
NEAR_CONSTANTS = "near_constants"
"""The pointer to small constants."""


def most_named(program: CallSequence, plan: MemoryPlan, first: int, end: int) -> dict[int, int]:
    """By an arena's number, where that part begins."""
    offsets = dict[int, list[int]]()
    for number, call in enumerate(program.calls[first:end], first):
        if isinstance(call, KernelCall):
            names = map(program.storage, (*call.inputs, *call.outputs))
            for place in filter(None, map(plan.placements.get, (*names, scratch_name(number)))):
                offsets.setdefault(place.memory, []).append(place.offset)
    found = dict[int, int]()
    for memory, named in offsets.items():
        counts = {start: sum(start <= each < start + _REACH for each in named) for start in {0, *named}}
        found[memory] = max(counts, key=lambda start: (counts[start], -start))
    return found


def pointers(plan: MemoryPlan, near: Mapping[int, int]) -> Iterator[str]:
    """The C of the pointers to arenas."""
    for memory, start in near.items():
        name = _name(plan, memory)
        yield f"    uint8_t *{name} = self->{arena_name(plan.memories[memory])} + {start:#x};"
        yield _as_if_read(name)


def constants_pointer(symbol: str) -> Iterator[str]:
    """The C of the pointer to small constants, which begin at a symbol."""
    yield f"    const uint8_t *{NEAR_CONSTANTS} = {symbol};"
    yield _as_if_read(NEAR_CONSTANTS)


def _as_if_read(name: str) -> str:
    """Else each sum with an offset would be a constant of its own."""
    return f'    __asm__("" : "+r"({name}));'


def pointer(plan: MemoryPlan, place: PlacedBlock, near: Mapping[int, int]) -> str:
    """The C that a block is found by."""
    start = near.get(place.memory, place.offset + 1)
    if start <= place.offset < start + _FAR:
        return f"{_name(plan, place.memory)} + {place.offset - start:#x}"
    return f"self->{arena_name(plan.memories[place.memory])} + {place.offset:#x}"


def _name(plan: MemoryPlan, memory: int) -> str:
    return arena_name(plan.memories[memory]).replace("arena", "near", 1)
