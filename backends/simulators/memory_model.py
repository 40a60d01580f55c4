"""What memory costs: cycles that the core waits, from the lines and words that each memory was asked for.

The core waits for each line of a cache that is filled or written back, as long as the memory takes for it. A memory
without a cache answers word by word: each word that is not the one before waits for the memory's latency, and stores
are buffered. Nothing is fetched ahead, and no two waits overlap.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass

from tosaic.backends.target import Cache, Memory, Pipeline

WORD = 4
"""Bytes of a word where the core has no timings."""


@dataclass(frozen=True)
class Requests:
    """What a region asked of one memory.

    Args:
        read, written: bytes of loads and stores.
        filled: lines of the data cache that were filled; words where there is none.
        written_back: lines of the data cache that were written back.
        fetched: lines of the code cache that were filled; words where there is none.
    """

    read: int = 0
    written: int = 0
    filled: int = 0
    written_back: int = 0
    fetched: int = 0


@dataclass(frozen=True)
class Traffic:
    """What a region asked of one memory, and what the core waits for it.

    Args:
        memory: its name.
        read, written, filled, written_back, fetched: as `Requests` has them.
        fill_waits, write_waits, fetch_waits: cycles that the core waits for data, for what is written, and for code.
        waits: all of them.
    """

    memory: str
    read: int = 0
    written: int = 0
    filled: int = 0
    written_back: int = 0
    fetched: int = 0
    fill_waits: int = 0
    write_waits: int = 0
    fetch_waits: int = 0
    waits: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing was asked."""
        return not (self.read or self.written or self.filled or self.written_back or self.fetched)

    def __add__(self, other: Traffic) -> Traffic:
        """Of the same memory, in all."""
        if other.is_idle:
            return self
        (_, *own), (_, *others) = astuple(self), astuple(other)
        return Traffic(self.memory, *(one + another for one, another in zip(own, others, strict=True)))


def traffic(memory: Memory, asked: Requests, pipeline: Pipeline | None) -> Traffic:
    """What requests cost; a memory whose speed nobody has said answers at once."""
    fill = round(asked.filled * fill_cycles(memory, memory.data_cache, pipeline))
    fetch = round(asked.fetched * fill_cycles(memory, memory.code_cache, pipeline))
    cache = memory.data_cache
    keeps_stores = cache is not None and cache.writes == "back"
    writes = asked.written_back if keeps_stores else asked.written / word_of(pipeline)
    write = round(writes * write_cycles(memory, pipeline))
    waits = {"fill_waits": fill, "write_waits": write, "fetch_waits": fetch, "waits": fill + write + fetch}
    return Traffic(memory.name, **asdict(asked), **waits)


def fill_cycles(memory: Memory, cache: Cache | None, pipeline: Pipeline | None) -> float:
    """Cycles that the core waits for a line of `cache`, for a word without one; 0 where no speed is known."""
    if memory.bytes_per_cycle is None or pipeline is None:
        return 0.0
    if cache is None:
        return (memory.latency or 0) + pipeline.bytes_per_cycle * _slower(memory.bytes_per_cycle, pipeline)
    if memory.line_fill is not None:
        return memory.line_fill
    return (memory.latency or 0) + cache.line / memory.bytes_per_cycle


def write_cycles(memory: Memory, pipeline: Pipeline | None) -> float:
    """Cycles that the core waits for what is written: a line of the data cache that is written back.

    Where no cache keeps what is stored, it is a word of it. 0 where no speed is known.
    """
    cache = memory.data_cache
    if memory.bytes_per_cycle is None or pipeline is None:
        return 0.0
    if cache is None or cache.writes == "through":
        return word_of(pipeline) * _slower(memory.bytes_per_cycle, pipeline)
    return memory.line_write_back if memory.line_write_back is not None else fill_cycles(memory, cache, pipeline)


def word_of(pipeline: Pipeline | None) -> int:
    """Bytes that a memory without a cache brings at a time: a bus of the core."""
    return pipeline.bytes_per_cycle if pipeline else WORD


def _slower(bytes_per_cycle: float, pipeline: Pipeline) -> float:
    """Cycles by which a byte takes longer than the loads and stores of the core."""
    return max(0.0, 1 / bytes_per_cycle - 1 / pipeline.bytes_per_cycle)
