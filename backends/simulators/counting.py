"""What QEMU's plugin counts between markers: how often a block of code followed another, and requests of
memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tosaic.backends.simulators.memory_model import Requests
from tosaic.backends.target import Cache, Memory
from tosaic.support.cache import cached
from tosaic.support.processes import run_tool

PLUGIN = Path(__file__).with_name("counting_plugin.c")
_POLICIES = ("lru", "round-robin", "random")


@dataclass(frozen=True)
class TranslationBlock:
    """A run of instructions that QEMU translated as one: `pc` in the guest, `size` in bytes, and their number.

    Where the last instruction crosses one of QEMU's pages, `size` holds only its first half.
    """

    pc: int
    size: int
    instructions: int


@dataclass(frozen=True)
class CountedRegion:
    """What ran between the marker of a region's beginning and that of its end (`firmware/markers.h`).

    Args:
        first, begin: the block that holds the first marker, and its place among that block's instructions.
        last, end: the same of the second.
        edges: how often block `to` ran right after block `from`, by (from, to), as numbers of `Counts.blocks`.
        instructions: instructions between the markers.
        requests: of the memories that were watched, and asked for something, by number.
    """

    first: int
    begin: int
    last: int
    end: int
    edges: Mapping[tuple[int, int], int]
    instructions: int
    requests: Mapping[int, Requests] = field(default_factory=dict)


@dataclass(frozen=True)
class Counts:
    """What a run counted; `limited` where it was ended because a region reached its limit."""

    blocks: Mapping[int, TranslationBlock]
    regions: tuple[CountedRegion, ...]
    limited: bool


def plugin() -> Path:
    """The compiled plugin.

    Raises:
        BackendError: gcc is not installed, or it refuses the source.
    """
    return cached("counting_plugin.so", [PLUGIN.read_bytes()], _build)


def _build(target: Path) -> None:
    run_tool("gcc", ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", PLUGIN, "-o", target])


def watch(memories: Sequence[Memory], word: int) -> list[str]:
    """The plugin's arguments that count what memories are asked for, through their caches.

    A memory without a cache for its data, or its code, keeps one word of so many bytes of it at hand.
    """
    caches: dict[Cache, int] = {}
    watched = []
    for memory in memories:
        numbers = []
        for holds, cache in (("data", memory.data_cache), ("code", memory.code_cache)):
            own = cache or Cache(f"{memory.base} {holds}", word, 1, word, writes="through")
            numbers.append(caches.setdefault(own, len(caches)))
        watched.append(f"memory={memory.base}:{memory.size}:{numbers[0]}:{numbers[1]}")
    made = [
        f"cache={c.size}:{c.ways}:{c.line}:{_POLICIES.index(c.policy)}:{int(c.writes == 'through')}" for c in caches
    ]
    return [*made, *watched]


def read_counts(path: Path) -> Counts:
    """The file that the plugin wrote; no counts where there is none."""
    blocks: dict[int, TranslationBlock] = {}
    regions: list[CountedRegion] = []
    edges: dict[tuple[int, int], int] = {}
    requests: dict[int, Requests] = {}
    limited = False
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, *fields = line.split()
        values = [int(field) for field in fields]
        if kind == "E" and len(values) == 3:
            edges[values[0], values[1]] = values[2]
        elif kind == "B" and len(values) == 4:
            blocks[values[0]] = TranslationBlock(*values[1:])
        elif kind == "R" and len(values) == 4:
            regions.append(_region(blocks, edges, requests, *values))
            edges, requests = {}, {}
        elif kind == "M" and len(values) == 6:
            requests[values[0]] = Requests(*values[1:])
        elif kind == "L":
            limited = True
    return Counts(blocks, tuple(regions), limited)


def _region(
    blocks: dict[int, TranslationBlock], edges: dict[tuple[int, int], int], requests: dict[int, Requests], *ends: int
) -> CountedRegion:
    first, begin, last, end = ends
    entered = sum(count * blocks[to].instructions for (_, to), count in edges.items())
    after_begin = blocks[first].instructions - begin - 1
    from_end = blocks[last].instructions - end
    return CountedRegion(first, begin, last, end, edges, entered + after_begin - from_end, requests)
