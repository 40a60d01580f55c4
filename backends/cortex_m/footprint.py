"""How many lines a cache fills for a loop nest, from the footprint of each loop alone.

A loop's footprint are the lines that its body touches over all its iterations. Where the cache holds what one iteration
touches, the next iteration finds what both share, and the loop fills each line of its footprint once. Else each
iteration fills what its own loops fill. Lines at a large power of two from one another share few sets, and take up more
of a cache. (After Wolf and Lam, "A Data Locality Optimizing Algorithm", PLDI 1991. Footprints in lines: Ferrante,
Sarkar and Thrash, "On Estimating and Enhancing Cache Effectiveness", LCPC 1991.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tosaic.backends.target import Cache

USABLE = 0.85
"""Of a cache whose sets are taken unevenly."""

Place = Literal["input", "output", "params", "scratch"]
"""What a kernel is given: tensors, its params, and working memory."""


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
    """

    loops: tuple[float, ...]
    accesses: tuple[ArrayAccess, ...]


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
    cached = [access for access in walk.accesses if access.place in places and (back or not access.writes)]
    touched = [_footprints(access, walk.loops, cache) for access in cached]
    depths = range(len(walk.loops) + 1)
    fits = [_fits(cached, [footprints[depth] for footprints in touched], cache) for depth in depths]
    filled: defaultdict[Place, float] = defaultdict(float)
    written: defaultdict[Place, float] = defaultdict(float)
    for access, footprints in zip(cached, touched, strict=True):
        if (access.place == "input" or access.again) and fits[0]:
            continue
        found = footprints[len(access.strides)].lines
        for depth in reversed(range(len(access.strides))):
            found = footprints[depth].lines if fits[depth + 1] else found * walk.loops[depth]
        filled[access.place] += found
        if access.writes and not fits[0]:
            written[access.place] += found
        if access.place == "input" and back:
            written["input"] += min(footprints[0].lines, cache.size / cache.line)
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
    """Lines that an access touches, and the lines of a cache that they take up: more where they share few sets."""

    lines: float
    taken: float


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
        lines = taken = max(1.0, extent / line)
        if runs > 1:
            reached = min(way / line, min(runs, way / math.gcd(step, way)) * lines)
            lines *= runs
            taken = lines * way / line / reached
        found.append(_Footprint(lines, taken))
    return found


def _fits(accesses: Sequence[ArrayAccess], footprints: Sequence[_Footprint], cache: Cache) -> bool:
    """Whether a cache holds what accesses touch; those of one block touch the same."""
    taken: dict[str, float] = {}
    for access, footprint in zip(accesses, footprints, strict=True):
        taken[access.of] = max(footprint.taken, taken.get(access.of, 0.0))
    return cache.line * sum(taken.values()) <= USABLE * cache.size
