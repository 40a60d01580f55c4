"""What elements of a type, and registers, hold."""

from __future__ import annotations

from tosaic.backends.cortex_m.program.tree import BYTES, INTEGERS, Buffer


def holds(dtype: str, other: str) -> bool:
    """Whether elements of a type hold all numbers of another one, as they are."""
    if dtype in INTEGERS and other in INTEGERS:
        return BYTES[dtype] >= BYTES[other]
    return dtype == other and dtype in BYTES


def in_class(dtype: str, memory: str) -> bool:
    """Whether registers of a class hold elements of a type."""
    return (dtype == "i64") == (memory == "p") and (dtype == "f32" or memory != "s")


def meet(one: Buffer, other: Buffer) -> bool:
    """Whether it is told of two buffers that they lie in part at one place of working memory."""
    if one.at is None or other.at is None:
        return False
    return one.at < other.at + other.bytes and other.at < one.at + one.bytes
