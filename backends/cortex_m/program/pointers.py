"""Pointers of a block with a hardware loop: which address each instruction has, and how pointers move on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.block import NARROW_REACH, BlockInstruction, advance, distance_name
from tosaic.backends.cortex_m.program.pointer_uses import Address, PointerUse
from tosaic.backends.cortex_m.program.tree import For

_NEAR = 64
"""Bytes that are no gap between rows."""
_REACH_OF_LANES, _WORD = 508, 4
"""How far from the addresses in a vector an access is, at most, and what divides that."""


@dataclass
class Pointers:
    """A plan.

    Args:
        starts: by name, where a pointer is before the loop: a buffer, and bytes from its start.
        moving: the pointers that move.
        addresses: by key of the access.
        advances: by name, by what pointers move at the end of an iteration, where no access can move them.
        lanes: by name, how lanes lie of the pointers that are vectors.
        distances: by name, numbers in general registers that such pointers move on by.
    """

    starts: dict[str, tuple[str, Affine]] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)
    addresses: dict[Hashable, Address] = field(default_factory=dict)
    advances: dict[str, int] = field(default_factory=dict)
    lanes: dict[str, Any] = field(default_factory=dict)
    distances: dict[str, int] = field(default_factory=dict)

    @property
    def numbers(self) -> list[str]:
        """The pointers in general registers."""
        return [name for name in self.starts if name not in self.lanes]

    def advanced(self, is_short: Callable[[Collection[str]], bool]) -> list[BlockInstruction]:
        """The instructions of `advances`: of 16 bits, two of which issue together, where several may be.

        Args:
            is_short: whether too few low registers are left for some pointers.
        """
        near = [name for name, distance in self.advances.items() if abs(distance) <= NARROW_REACH]
        narrow = near if len(near) > 1 and not is_short(near) else []
        return [i for name, distance in self.advances.items() for i in advance(name, distance, narrow=name in narrow)]

    def along(self, buffer: str, outer: Affine, uses: Sequence[PointerUse]) -> None:
        """Accesses that happen once, in order: one pointer goes from each to the next where one instruction does not
        reach all, and that is one step for all of them."""
        consts = [use.where.const for use in uses]
        steps = {after - before for before, after in itertools.pairwise(consts)}
        reached = max(consts) - min(consts) <= min(use.row.reach[1] for use in uses)
        if reached or len(steps) != 1 or not _step(uses, step := steps.pop()):
            self.still(buffer, outer, uses)
            return
        name = self._named(buffer, outer + consts[0], moving=True)
        self.addresses.update((use.key, Address(f"[{{{name}}}], #{step}", name, True)) for use in uses)

    def still(self, buffer: str, outer: Affine, uses: Sequence[PointerUse]) -> None:
        """Accesses at constant distances: a pointer follows another as far as one instruction reaches, forward, or both
        ways from the middle."""
        left = sorted(uses, key=lambda use: use.where.const)
        while left:
            first = left[0].where.const
            back, reach = max(use.row.reach[0] for use in left), min(use.row.reach[1] for use in left)
            near = [use for use in left if use.where.const - first <= reach - back]
            base = first if near[-1].where.const - first <= reach else first - back
            name = self._named(buffer, outer + base)
            for use in near:
                self.addresses[use.key] = _at(name, use.where.const - base)
            left = left[len(near) :]

    def walk(self, buffer: str, outer: Affine, stride: int, uses: Sequence[PointerUse]) -> None:
        """Accesses of an iteration in order, which move on by `stride` bytes each iteration.

        The pointer goes from each access to the next where that is one step for all of them. Else one of them moves it,
        best the last, and the others stand at a distance from there.
        """
        consts = [use.where.const for use in uses]
        steps = {after - before for before, after in zip(consts, [*consts[1:], consts[0] + stride], strict=True)}
        if len(steps) == 1 and _step(uses, step := steps.pop()):
            name = self._named(buffer, outer + consts[0], moving=True)
            for use in uses:
                self.addresses[use.key] = Address(f"[{{{name}}}], #{step}", name, True)
            return
        moved = stride if _step(uses, stride) else 0
        mover = _mover(uses, moved)
        if mover is None:
            near = [use for use in uses if use.row.reach[0] <= use.where.const - consts[-1] <= use.row.reach[1]]
            for part in (near, [use for use in uses if use not in near]):
                self.walk(buffer, outer, stride, part)
            return
        places = [const - consts[mover] - moved * (number > mover) for number, const in enumerate(consts)]
        name = self._named(buffer, outer + consts[mover], moving=True)
        self.addresses.update((use.key, _at(name, at)) for use, at in zip(uses, places, strict=True))
        if moved:
            self.addresses[uses[mover].key] = Address(f"[{{{name}}}], #{stride}", name, True)
        else:
            self.advances[name] = stride

    def addressed(self, buffer: str, outer: Affine, stride: int, uses: Sequence[PointerUse], way: Way) -> bool:
        """Accesses of an iteration in order by one vector of addresses, where their lanes lie alike.

        One of them moves it, best the last, to where its own lanes lie; where not all reach, it goes along.
        """
        if uses[0].lanes is None or any(not use.iterations or use.lanes != uses[0].lanes for use in uses):
            return False
        consts = [use.where.const for use in uses]
        for mover in range(len(uses) - 1, -1, -1):
            places = [const - consts[mover] + stride * (number <= mover) for number, const in enumerate(consts)]
            if all(abs(place) <= _REACH_OF_LANES and place % _WORD == 0 for place in places):
                name = self._named(buffer, outer + (consts[mover] - stride), moving=True)
                self.lanes[name] = uses[0].lanes
                for number, (use, place) in enumerate(zip(uses, places, strict=True)):
                    text = f"[{{{name}}}, #{place}]" + "!" * (number == mover)
                    self.addresses[use.key] = Address(text, name, number == mover, of_lanes=True)
                return True
        return self.along_lanes(buffer, outer, stride, uses, way)

    def along_lanes(self, buffer: str, outer: Affine, stride: int, uses: Sequence[PointerUse], way: Way) -> bool:
        """A vector of addresses goes along accesses of an iteration, and back behind the last one.

        Where it does not reach the next one, the access that it stands at moves it, or an addition.
        """
        consts = [use.where.const for use in uses]
        first = at = consts[0] + _REACH_OF_LANES
        name, found = f"p{len(self.starts)}", list[Address]()
        for const, after in itertools.zip_longest(consts, consts[1:]):
            place, moves, behind = const - at, False, 0
            if abs(place) > _REACH_OF_LANES or place % _WORD:
                return False
            if after is not None and abs(after - at) > _REACH_OF_LANES:
                moves = way == "moved"
                behind = 0 if moves else after + _REACH_OF_LANES - at
            found.append(Address(f"[{{{name}}}, #{place}]" + "!" * moves, name, moves, behind, of_lanes=True))
            at = const if moves else at + behind
        found[-1] = found[-1]._replace(behind=first + stride - at)
        self.lanes[self._named(buffer, outer + first, moving=True)] = uses[0].lanes
        self.distances |= {distance_name(each.behind): each.behind for each in found if each.behind}
        self.addresses.update((use.key, address) for use, address in zip(uses, found, strict=True))
        return True

    def chain(self, buffer: str, outer: Affine, stride: int, rows: Sequence[Sequence[PointerUse]]) -> None:
        """Accesses in order; a pointer goes from place to place for all that lie in a row, in a loop back to its first.

        What comes behind a loop has a pointer of its own.
        """
        for row in rows:
            inside = [number for number, use in enumerate(row) if use.iterations]
            behind = row[inside[-1] + 1 :] if inside else []
            if behind:
                self.chain(buffer, outer, 0, [behind])
            runs = list[list[PointerUse]]()
            for use in row[: len(row) - len(behind)]:
                reach = min(min(-each.row.reach[0], each.row.reach[1]) for each in row)
                near = runs and all(abs(use.where.const - other.where.const) <= reach for other in runs[-1])
                if not near or use.iterations != runs[-1][-1].iterations:
                    runs.append([])
                runs[-1].append(use)
            ends = [run[-1].where.const for run in runs]
            name = self._named(buffer, outer + ends[0], moving=len(runs) > 1 or stride != 0)
            back = next((end for run, end in zip(runs, ends, strict=True) if run[0].iterations), ends[-1]) + stride
            for run, end, target in zip(runs, ends, [*ends[1:], back], strict=True):
                self.addresses.update((use.key, _at(name, use.where.const - end)) for use in run)
                self._moved(run[-1], name, target - end)

    def follow(self, buffer: str, outer: Affine, ahead: int | None, uses: Sequence[PointerUse]) -> bool:
        """Accesses behind a loop from where a pointer stands that has gone so many bytes ahead in it, if one has, and
        reaches all."""
        for name, start in self.starts.items():
            if ahead is not None and name in self.moving and start == (buffer, outer + start[1].const):
                places = [use.where.const - start[1].const - ahead for use in uses]
                if all(use.row.reach[0] <= at <= use.row.reach[1] for use, at in zip(uses, places, strict=True)):
                    self.addresses.update((use.key, _at(name, at)) for use, at in zip(uses, places, strict=True))
                    return True
        return False

    def _moved(self, use: PointerUse, name: str, distance: int) -> None:
        """The access at which a pointer stands moves it on."""
        if distance and use.row.steps(distance):
            self.addresses[use.key] = Address(f"[{{{name}}}], #{distance}", name, True)
        elif distance:
            self.addresses[use.key] = Address(f"[{{{name}}}]", name, False, distance)

    def _named(self, buffer: str, start: Affine, moving: bool = False) -> str:
        name = f"p{len(self.starts)}"
        self.starts[name] = (buffer, start)
        if moving:
            self.moving.add(name)
        return name


def _step(uses: Sequence[PointerUse], distance: int) -> bool:
    """Whether each of some accesses may move the pointer on by so many bytes."""
    return all(use.row.steps(distance) for use in uses)


def _mover(uses: Sequence[PointerUse], moved: int) -> int | None:
    """The access, best the last, that moves the pointer by so many bytes while all others reach theirs; None where none
    can: the ones before count from where it stands, those behind it from where it goes."""
    least = [use.where.const - use.row.reach[1] for use in uses]
    most = [use.where.const - use.row.reach[0] for use in uses]
    before = zip(itertools.accumulate(least, max), itertools.accumulate(most, min), strict=True)
    behind = zip(itertools.accumulate(least[:0:-1], max), itertools.accumulate(most[:0:-1], min), strict=True)
    ends = zip(before, [*reversed(list(behind)), (-math.inf, math.inf)], strict=True)
    able = [
        number
        for number, ((low, high), (after, until)) in enumerate(ends)
        if low <= uses[number].where.const <= high and after <= uses[number].where.const + moved <= until
    ]
    last = len(uses) - 1
    return last if last in able else next(iter(able), None)


def _at(pointer: str, distance: int) -> Address:
    return Address(f"[{{{pointer}}}, #{distance}]" if distance else f"[{{{pointer}}}]", pointer, False)


def _rows(uses: Sequence[PointerUse]) -> list[list[PointerUse]]:
    """Accesses with those of a row together, from which the next one is farther than any is from its neighbor."""
    places = sorted({use.where.const for use in uses})
    gaps = [after - before for before, after in itertools.pairwise(places)]
    far = max(gaps, default=0)
    apart = far >= 2 * min(gaps, default=0) and far > _NEAR
    starts = [places[0], *(after for after, gap in zip(places[1:], gaps, strict=True) if apart and 2 * gap > far)]
    rows: dict[int, list[PointerUse]] = {}
    for use in uses:
        rows.setdefault(max(start for start in starts if start <= use.where.const), []).append(use)
    return list(rows.values())


Spread = Literal["stand", "rows", "one"]
"""How pointers share accesses of a buffer that move alike: each stands as near as instructions reach; one goes from
place to place for each row; or one for all."""
SPREADS: tuple[Spread, ...] = ("stand", "rows", "one")
Way = Literal["moved", "added"]
"""How a vector of addresses goes along accesses: one of them moves it, or an addition does."""
WAYS: tuple[Way, ...] = ("moved", "added")


def planned(uses: Sequence[PointerUse], loop: For | None, spread: Spread = "stand", way: Way = "moved") -> Pointers:
    """The pointers of a block, given its accesses in order; `loop` is its hardware loop."""
    groups: dict[tuple[str, Affine, int, int], list[PointerUse]] = {}
    for use in uses:
        stride = use.where[loop.var] * loop.step if loop is not None else 0
        outer = Affine(tuple(t for t in use.where.terms if loop is None or t[0] != loop.var))
        groups.setdefault((use.buffer, outer, stride, use.row.align), []).append(use)
    found, ahead = Pointers(), dict[tuple[str, Affine], int]()
    for (buffer, outer, stride, _), group in sorted(groups.items(), key=lambda each: each[1][0].behind):
        if stride and found.addressed(buffer, outer, stride, group, way):
            continue
        if spread != "stand":
            found.chain(buffer, outer, stride, _rows(group) if spread == "rows" else [group])
        elif loop is None:
            found.along(buffer, outer, group)
        elif stride:
            found.walk(buffer, outer, stride, group)
            # A vector that runs ahead of the last iteration may move its pointer once more.
            strays = loop.ahead and any(formal.memory == "q" for use in group for formal in use.row.formals)
            if not strays and (buffer, outer) not in ahead:
                ahead[buffer, outer] = stride * loop.iterations
        elif not (group[0].behind and found.follow(buffer, outer, ahead.get((buffer, outer)), group)):
            found.still(buffer, outer, group)
    return found


def bytes_ahead(use: PointerUse, loop: For, last: Mapping[str, int]) -> int:
    """How far from the start of its buffer a load begins that is executed for an iteration behind the last one."""
    return use.where.bounds({**last, loop.var: loop.last + loop.step})[1]
