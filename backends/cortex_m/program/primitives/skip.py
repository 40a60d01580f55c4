"""The primitive that leaves out of an iteration what the next one does again: skip."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial

from tosaic.backends.cortex_m.program.legal import changed_in, elements_of, uses
from tosaic.backends.cortex_m.program.primitives.loops import plain, renamed, with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import accesses, at, mapped, mapped_down, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import own_buffers, touches, written_by
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Let,
    Reduce,
    RefusedError,
    Seq,
    Statement,
)


@PRIMITIVES.register
class Skip(Primitive):
    """`skip(x, S)`: the last iteration of loop `x`, which starts early, comes before the one before it. It leaves out
    those elements of `S`, and of other sums that are named, of which nothing is left after that. It leaves out what is
    made of nothing else, too. Names in the two iterations end in `_e` and `_f`.
    """

    name = "skip"
    takes = ("early", "own", "own")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, sums = plain(program.loop(str(arguments[0]))), [program.buffer(str(name)) for name in arguments[1:]]
        if not loop.early or not {b.name for b in sums} <= own_buffers(loop.body):
            names = " and ".join(b.name for b in sums)
            raise RefusedError(f"the last iteration of `{loop.var}` does not start early, with {names} of its own")
        if any(use.how != "write" for _, found in changed_in(program, loop) for use in found):
            raise RefusedError(f"iterations of `{loop.var}` do more than write")
        *others, before, last = loop.positions
        early, again = (at(loop.body, {loop.var: position}) for position in (last, before))
        written = _changes(loop.body)
        overwritten = {
            (use.access.buffer, place)
            for use in uses(again)
            if use.access.buffer in written and use.how == "write" and use.sure
            for place in elements_of(program.buffers[use.access.buffer].address(use.access.index), use.loops)
        }
        found = early
        for b in sums:
            reach = _Reach(program.buffers, b, written)
            reach.walk(early, {})
            found = _without(found, b, {element for element in range(b.size) if reach.ends_of(element) <= overwritten})
        if found is early:
            raise RefusedError(f"what is left of all of {' and '.join(b.name for b in sums)} stays")
        found = seq(renamed(program, _made_of_something(found), "_e"), renamed(program, again, "_f"))
        if others:
            found = seq(replace(loop, extent=len(others) * loop.step, early=False), found)
        return with_loop(program, loop, found)


class _Reach:
    """Which elements outside an iteration each element of a buffer ends in."""

    def __init__(self, buffers: Mapping[str, Buffer], b: Buffer, outside: Set[str]) -> None:
        self.buffers, self.b, self.outside = buffers, b, outside
        self.sources: dict[tuple[str, int], set[int]] = {}

    def ends_of(self, element: int) -> set[tuple[str, int]]:
        return {place for place, sources in self.sources.items() if place[0] in self.outside and element in sources}

    def walk(self, s: Statement, values: Mapping[str, int]) -> None:
        """One statement, at values of the loops inside of the iteration."""
        match s:
            case Seq():
                for part in s.body:
                    self.walk(part, values)
            case Alloc():
                self.walk(s.body, values)
            case For():
                if _changes(s) != {self.b.name}:
                    for position in s.positions:
                        self.walk(s.body, {**values, s.var: position})
            case Assign() | Reduce():
                if s.target.buffer != self.b.name:
                    found = set[int]().union(*(self._of(access, values) for access in accesses(s.value)))
                    if isinstance(s, Reduce):
                        found |= self._of(s.target, values)
                    self.sources[self._place(s.target, values)] = found
            case _:
                raise RefusedError(f"conditions or instructions say what comes of {self.b.name}")

    def _of(self, access: Access, values: Mapping[str, int]) -> set[int]:
        place = self._place(access, values)
        return {place[1]} if access.buffer == self.b.name else self.sources.get(place, set())

    def _place(self, access: Access, values: Mapping[str, int]) -> tuple[str, int]:
        """An element; other variables count as 0."""
        return access.buffer, self.buffers[access.buffer].address(access.index).at(values).const


def _changes(s: Statement) -> Set[str]:
    """The names of buffers from outside that a statement writes."""
    return written_by(s) - own_buffers(s)


def _without(s: Statement, b: Buffer, dead: set[int]) -> Statement:
    """A statement without what makes some elements of a buffer: loops that count these are written out."""

    def one(s: Statement) -> Statement | None:
        if _changes(s) != {b.name}:
            return None
        places = {b.address(use.access.index) for use in uses(s, b.name)}
        if isinstance(s, For) and any(place[s.var] for place in places):
            return seq(*(_without(at(s.body, {s.var: position}), b, dead) for position in s.positions))
        if len(places) > 1:
            return None
        (place,) = places
        return seq() if place.terms == () and place.const in dead else s

    return mapped_down(s, one)


def _made_of_something(s: Statement) -> Statement:
    """An iteration without what is made of its own buffers that nothing begins, and what makes those that nothing
    reads."""
    own, before = own_buffers(s), None
    while s != before:
        before = s
        read = {a.buffer for how, a in touches(s) if how == "read"}
        begun = {
            part.target.buffer
            for part in walk(s)
            if isinstance(part, Assign) and part.target.buffer not in {a.buffer for a in accesses(part.value)}
        }
        idle = own - (begun & read)
        s = mapped(s, partial(_busy, idle))
    return s


def _busy(idle: Set[str], s: Statement) -> Statement:
    """A statement, or none where it uses such buffers, or holds nothing."""
    if isinstance(s, Assign | Reduce) and any(a.buffer in idle for _, a in touches(s)):
        return seq()
    nothing = isinstance(s, For | Let | Alloc) and s.body == seq()
    return seq() if nothing else seq(*s.body) if isinstance(s, Seq) else s
