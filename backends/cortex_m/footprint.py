"""How many lines a cache fills for a loop nest, from the footprint of each loop alone.

A loop's footprint are the lines that its body touches over all its iterations. What a cache holds of one iteration's
footprint is found there by the next iteration: of such lines, the loop fills each once. Of the others, each iteration
fills what its own loops fill. A cache holds the lines of the sets that have as many ways as lines, where blocks begin
anywhere. Lines at a large power of two from one another share few sets.
(After Wolf and Lam, "A Data Locality Optimizing Algorithm", PLDI 1991. Footprints in lines: Ferrante,
Sarkar and Thrash, "On Estimating and Enhancing Cache Effectiveness", LCPC 1991.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from tosaic.backends.target import Cache

USABLE = 0.85
"""Of a cache whose sets are taken unevenly."""

Place = Literal["input", "output", "params", "scratch"]
"""What a kernel is given: tensors, its params, and working memory."""
_AGE: Mapping[Place, int] = MappingProxyType({"input": 0, "output": 1, "scratch": 2, "params": 3})
"""In which order a cache gives up lines: those of the input first, which was written before."""


class ArrayAccess(NamedTuple):
    """What the body of a loop reads or writes of one block of memory.

    Args:
        of: the block; accesses of one name share it.
        place: what the block is part of.
        size: bytes that lie together.
        strides: bytes by which the address moves in each loop, outermost first; fewer than there are loops where the
            access stands inside of the outer ones only.
        writes: whether it writes.
        inner: (iterations, stride) of loops of its own, all inside.
        accessed: bytes in all, where no cache keeps any; None for its size in each iteration.
        again: whether another walk before has accessed the same block.
    """

    of: str
    place: Place
    size: float
    strides: tuple[float, ...]
    writes: bool = False
    inner: tuple[tuple[float, float], ...] = ()
    accessed: float | None = None
    again: bool = False


@dataclass(frozen=True)
class Walk:
    """A nest of loops, and what it accesses.

    Args:
        loops: iterations of each loop, outermost first.
        accesses: what is accessed inside.
        beside: what other nests access in the outer ones of these loops, as many as it has strides. It takes up room in
            a cache, and is moved by its own nest.
    """

    loops: tuple[float, ...]
    accesses: tuple[ArrayAccess, ...]
    beside: tuple[ArrayAccess, ...] = ()


class Moved(NamedTuple):
    """Lines of one place that a cache fills and writes back, or words that are read and written without one."""

    filled: float
    written: float


def lines_moved(walk: Walk, places: Collection[Place], cache: Cache) -> dict[Place, Moved]:
    """Lines that a cache fills and writes back for a walk, by place.

    The input has just been written, so that as much of it as fits is in the cache and has yet to be written back. What
    a walk before has accessed is there as well, where it fits. A cache that writes through takes nothing in on a store,
    and has nothing to write back.

    Args:
        places: those that lie behind the cache.
    """
    back = cache.writes == "back"
    through = [
        [access for access in accesses if access.place in places and (back or not access.writes)]
        for accesses in (walk.accesses, walk.beside)
    ]
    cached, beside = ([(access, _footprints(access, walk.loops, cache)) for access in some] for some in through)
    rooms = [
        _Room([*cached, *(each for each in beside if len(each[0].strides) >= depth)], depth, cache)
        for depth in range(len(walk.loops) + 1)
    ]
    half = _Room([*cached, *beside], 0, cache, made=0.5)
    filled: defaultdict[Place, float] = defaultdict(float)
    written: defaultdict[Place, float] = defaultdict(float)
    dirty = rooms[0].displaced if back else 0.0
    for access, footprints in sorted(cached, key=lambda each: _AGE[each[0].place]):
        lines = found = footprints[len(access.strides)].lines
        for depth in reversed(range(len(access.strides))):
            anew = found * walk.loops[depth]
            lines = footprints[depth].lines
            found = anew + rooms[depth + 1].kept(access.of) * (lines - anew)
        room = half if access.place == "input" else rooms[0] if access.again else None
        filled[access.place] += (1 - room.kept(access.of)) * found if room else found
        if access.writes or access.place == "input":
            last = min(lines, dirty, cache.size / cache.line if access.place == "input" else math.inf)
            dirty -= last
            written[access.place] += last + (found - min(found, lines) if access.writes else 0.0)
    return {place: Moved(filled[place], written[place]) for place in places}


def words_moved(walk: Walk, place: Place, word: int) -> Moved:
    """Words of a place that are read and written where no cache keeps any."""
    found: defaultdict[bool, float] = defaultdict(float)
    for access in walk.accesses:
        if access.place == place:
            iterations = math.prod(walk.loops[: len(access.strides)]) * math.prod(
                iterations for iterations, _ in access.inner
            )
            accessed = iterations * access.size if access.accessed is None else access.accessed
            found[access.writes] += accessed / word
    return Moved(found[False], found[True])


class _Footprint(NamedTuple):
    """Lines that an access touches, and the sets of a cache that these are in."""

    lines: float
    sets: float


def _footprints(access: ArrayAccess, loops: Sequence[float], cache: Cache) -> list[_Footprint]:
    """What an access touches while the loops outside of each depth stand still, the outermost loop first."""
    line, way = cache.line, cache.size // cache.ways
    moves = [
        (abs(stride), iterations, depth)
        for depth, (iterations, stride) in enumerate(zip(loops, access.strides, strict=False))
    ]
    moves += [(abs(stride), iterations, len(loops)) for iterations, stride in access.inner]
    moves = sorted(move for move in moves if move[0] and move[1] > 1)
    found: list[_Footprint] = []
    for inside in range(len(loops) + 1):
        if found and not any(depth == inside - 1 for _, _, depth in moves):
            found.append(found[-1])
            continue
        extent, runs, step, last = float(access.size), 1.0, 0, 0.0
        for stride, iterations, depth in moves:
            if depth < inside:
                continue
            if runs == 1 and stride <= extent + line - 1:
                extent += stride * (iterations - 1)
            else:
                step, last = math.gcd(step, round(stride)), last + stride * (iterations - 1)
                runs = min(runs * iterations, last / step + 1)  # several loops may reach the same
        lines = max(1.0, extent / line)
        apart = min(runs, way / math.gcd(step, way)) if runs > 1 else 1.0
        touched = min(lines * runs, (last + extent) / line + 1) if runs > 1 else lines
        found.append(_Footprint(touched, min(way / line, apart * lines, touched)))
    return found


class _Room:
    """What room the sets of a cache have for what accesses touch inside of a depth, wherever blocks begin.

    Accesses of one block touch the same.

    Args:
        made: the share of the output that has been written.
    """

    def __init__(
        self, touched: Iterable[tuple[ArrayAccess, Sequence[_Footprint]]], depth: int, cache: Cache, made: float = 1.0
    ) -> None:
        self._cache = cache
        blocks: dict[str, _Footprint] = {}
        for access, footprints in touched:
            lines, sets = footprints[depth]
            share = made if access.place == "output" else 1.0
            here = _Footprint(lines * share, min(sets, max(1.0, lines * share)))
            blocks[access.of] = max(here, blocks.get(access.of, here))
        self._blocks = blocks

    def kept(self, block: str) -> float:
        """The share of a block's lines that are in sets with room for all that is touched."""
        lines, sets = self._blocks[block]
        others = self._taken(name for name in self._blocks if name != block)
        some, more = divmod(lines / sets, 1)
        own = ((int(some), some * (1 - more)), (int(some) + 1, (some + 1) * more))
        ways = self._cache.ways
        return sum(weight * sum(others[: max(0, ways - each + 1)]) for each, weight in own) / (lines / sets)

    @property
    def displaced(self) -> float:
        """Lines for which there is no room."""
        ways, sets = self._cache.ways, self._cache.sets
        free = sum(chance * (ways - lines) for lines, chance in enumerate(self._taken(self._blocks)))
        return sum(each.lines for each in self._blocks.values()) - sets * (ways - free)

    def _taken(self, blocks: Iterable[str]) -> list[float]:
        """The chances of each number of lines of some blocks in a set, as far as there are ways."""
        ways, chances = self._cache.ways, [1.0]
        for name in blocks:
            lines, sets = self._blocks[name]
            some, more = divmod(lines / sets, 1)
            share = sets / self._cache.sets
            found = [chance * (1 - share) for chance in chances] + [0.0] * (ways + 1 - len(chances))
            for further, part in ((int(some), share * (1 - more)), (int(some) + 1, share * more)):
                for before, chance in enumerate(chances[: max(0, ways - further + 1)]):
                    found[before + further] += chance * part
            chances = found
        return chances
