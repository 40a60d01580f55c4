"""What a block of instructions asks of its pointers: the accesses, and the address that each gets."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.row import Row


class PointerUse(NamedTuple):
    """An access of memory.

    Args:
        key: what tells it from others.
        where: bytes from the start of the buffer.
        stride: bytes from lane to lane.
        iterations: whether it stands in the hardware loop of its block.
        behind: whether it stands behind that.
        lanes: where a vector may hold the addresses of its lanes, what tells their distances from others.
    """

    key: Hashable
    buffer: str
    where: Affine
    row: Row
    stride: int = 1
    iterations: bool = True
    behind: bool = False
    lanes: Hashable = None


class Address(NamedTuple):
    """The address of an instruction as the assembler wants it, and the pointer in it; whether that moves on.

    Args:
        behind: bytes that other instructions move the pointer on by, right behind.
        of_lanes: whether the pointer is a vector, of the addresses of all lanes.
    """

    text: str
    pointer: str
    moves: bool
    behind: int = 0
    of_lanes: bool = False
