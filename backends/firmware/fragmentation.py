"""Which calls of a program in a row need more memory together than each by itself: no place that their tensors can have
leaves room for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tosaic.backends.firmware.memory_plan import Leads, fits, overlaps, program_blocks, scratch_name
from tosaic.backends.firmware.placing import LiveBlock
from tosaic.backends.firmware.program import CallSequence

_SHARE = 16
"""Of a call's working memory, to which its surplus is exact."""


@dataclass(frozen=True)
class Fragmented:
    """Calls from `first` on that have no plan together.

    Args:
        surplus: for each of them the bytes of working memory that are not to blame: with so much less in all of them
            there is no plan either.
    """

    first: int
    surplus: tuple[int, ...]


def fragmented(program: CallSequence, size: int) -> Fragmented | None:
    """The fewest calls in a row for which no plan of `size` bytes is found; None where the program has one."""
    blocks, leads = program_blocks(program, 1), overlaps(program)
    count = len(program.calls)
    for length in range(1, count + 1):
        for first in range(count - length + 1):
            here = [block for block in blocks if block.first < first + length and block.last >= first]
            if not fits(here, leads, size):
                return Fragmented(first, _surplus(here, leads, size, range(first, first + length)))
    return None


def _surplus(blocks: Sequence[LiveBlock], leads: Leads, size: int, calls: Sequence[int]) -> tuple[int, ...]:
    found = []
    for call in calls:
        name = scratch_name(call)
        whole = next((block.size for block in blocks if block.name == name), 0)
        least, most = 0, whole
        while most - least > whole // _SHARE:
            middle = (least + most) // 2
            if fits(_with(blocks, name, middle), leads, size):
                least = middle
            else:
                most = middle
        blocks = _with(blocks, name, most)
        found.append(whole - most)
    return tuple(found)


def _with(blocks: Sequence[LiveBlock], name: str, size: int) -> list[LiveBlock]:
    return [replace(block, size=size) if block.name == name else block for block in blocks]
