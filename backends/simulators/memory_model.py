"""What memory costs: cycles that the core waits, from what each memory was asked for.

A model without caches: each byte comes from its memory each time, at the memory's rate, and each read that does not
continue a stream waits for the memory's latency. Writes are buffered, and code is fetched ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.target import Memory, Pipeline


@dataclass(frozen=True)
class Requests:
    """What a region asked of one memory: bytes `read` and `written`, and `jumps`, the reads that began a new stream."""

    read: int
    written: int
    jumps: int


@dataclass(frozen=True)
class Traffic:
    """Bytes `read` from and `written` to one memory, and the cycles that the core `waits` for it."""

    memory: str
    read: int
    written: int
    waits: int

    def __add__(self, other: Traffic) -> Traffic:
        """Of the same memory, in all."""
        sums = self.read + other.read, self.written + other.written, self.waits + other.waits
        return Traffic(self.memory, *sums)


def traffic(memory: Memory, asked: Requests, pipeline: Pipeline | None) -> Traffic:
    """What requests cost; a memory whose speed nobody has said answers at once."""
    waits = waited(memory, asked.read + asked.written, asked.jumps, pipeline)
    return Traffic(memory.name, asked.read, asked.written, round(waits))


def waited(memory: Memory | None, moved: float, jumps: float, pipeline: Pipeline | None) -> float:
    """Cycles that the core waits for `moved` bytes in `jumps` streams; 0 where no memory or no speed is given."""
    if memory is None or memory.bytes_per_cycle is None or pipeline is None:
        return 0.0
    slower = max(0.0, 1 / memory.bytes_per_cycle - 1 / pipeline.bytes_per_cycle)
    return moved * slower + jumps * (memory.latency or 0)
