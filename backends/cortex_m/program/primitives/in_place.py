"""The primitive that reads the source of a copy where all of it lies there: in_place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tosaic.backends.cortex_m.isa.isa import ISAS, rows_of
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import under
from tosaic.backends.cortex_m.program.legal import bounds_of, uses
from tosaic.backends.cortex_m.program.primitives.loops import renamed
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import exchanged, mapped, nest_of, seq, with_accesses
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import written_by
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Around,
    Assign,
    Buffer,
    For,
    If,
    Instr,
    RefusedError,
    Seq,
    Statement,
)


@PRIMITIVES.register
class InPlace(Primitive):
    """`in_place(P, i)`: where all of a copy lies in its source, what reads the copy reads the source, and nothing is
    copied. What reads there has names that end in `_i`."""

    name = "in_place"
    takes = ("computed", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, suffix = program.buffer(str(arguments[0])), f"_{arguments[1]}"
        scope, around = _scope_of(program, b)
        maker, *users = scope.body.body if isinstance(scope.body, Seq) else (scope.body,)
        copy = _copy_of(maker, b)
        source = program.buffer(copy.source.buffer)
        if source.dtype != b.dtype:
            raise RefusedError(f"{b.name} holds {b.dtype}, {source.name} {source.dtype}")
        if {b.name, source.name} & set().union(*map(written_by, users)):
            raise RefusedError(f"{source.name} or {b.name} changes before {b.name} is read")
        inside = copy.inside(source, _reached(users, around, b), around)
        always = all(bounds_of(condition, around)[0] >= 0 for condition in inside)
        if any(bounds_of(condition, around)[1] < 0 for condition in inside):
            raise RefusedError(f"{b.name} never lies in {source.name}")
        straight = mapped(with_accesses(seq(*users), copy.straight), lambda s: _reaching(s, source))
        if not always:
            straight = If(inside, renamed(program, straight, suffix), scope)
        return replace(program, body=exchanged(program.body, scope, straight))


def _reaching(s: Statement, source: Buffer) -> Statement:
    """A statement that takes addresses of a buffer as they are.

    Raises:
        RefusedError: no instruction means the same at these addresses.
    """
    if not isinstance(s, Instr):
        return s
    row = s.row
    places = [
        source.address(access.index) * BYTES[source.dtype]
        for formal, access in zip(row.formals, s.operands, strict=True)
        if formal.memory == "m" and access.buffer == source.name
    ]

    def reaches(row: Row) -> bool:
        return all(place.is_multiple(row.align) for place in places)

    if reaches(row):
        return s
    sets = (rows_of(name) for name in ISAS.known())
    alike = (other for rows in sets if row in rows for other in rows if _does(other) == _does(row) and reaches(other))
    found = next(alike, None)
    if found is None:
        raise RefusedError(f"no instruction does what {row.name} does at any address of {source.name}")
    return replace(s, row=found)


def _does(row: Row) -> tuple[object, ...]:
    """What an instruction does, wherever its operands lie."""
    return row.lanes, row.meaning, row.formals, row.apart, row.gathers, row.inner, row.dense


def _scope_of(program: Program, b: Buffer) -> tuple[Alloc, tuple[Around, ...]]:
    """Where a buffer lives, and what stands around that.

    Raises:
        RefusedError: it is an argument, or lives in several places.
    """
    scopes = [
        (s, around)
        for s, around in under(program.body, name=b.name)
        if isinstance(s, Alloc) and s.buffer.name == b.name
    ]
    if len(scopes) != 1:
        raise RefusedError(f"{b.name} is not made in one place")
    return scopes[0]


class _Copy(NamedTuple):
    """A copy, element by element, of what lies in a source.

    Args:
        name: of the copy.
        loops: that count its elements, by dimension; None where there is one.
        source: what is copied where the conditions hold.
    """

    name: str
    loops: tuple[For | None, ...]
    conditions: tuple[Affine, ...]
    source: Access

    def straight(self, access: Access) -> Access:
        """The element of the source behind an element of the copy."""
        if access.buffer != self.name:
            return access
        values = {f.var: i for f, i in zip(self.loops, access.index, strict=True) if f is not None}
        return Access(self.source.buffer, tuple(i.at(values) for i in self.source.index))

    def inside(self, source: Buffer, last: Sequence[int], around: Sequence[Around]) -> tuple[Affine, ...]:
        """What must hold so that all elements lie in the source, and what is read up to `last` too."""
        made = [f for f in self.loops if f is not None]
        worst = (c.at({f.var: 0 if c[f.var] >= 0 else f.last for f in made}) for c in self.conditions)
        found = tuple(dict.fromkeys(worst))
        end = self.straight(Access(self.name, tuple(map(Affine.of, last))))
        known = (*around, If(found, Seq(()), Seq(())))
        most = source.address(tuple(Affine.of(bounds_of(index, known)[1]) for index in end.index))
        return found if most.const < source.size else (*found, source.address(end.index) * -1 + (source.size - 1))


def _copy_of(maker: Statement, b: Buffer) -> _Copy:
    """What a statement copies to all of a buffer that it fills.

    Raises:
        RefusedError: it does more than that.
    """
    loops, inner = nest_of(maker)
    conditions = inner.conditions if isinstance(inner, If) else ()
    copy = inner.then if isinstance(inner, If) else inner
    if written_by(maker) != {b.name}:
        raise RefusedError(f"what fills {b.name} writes more than that")
    if not isinstance(copy, Assign) or not isinstance(copy.value, Access):
        raise RefusedError(f"{b.name} is no copy")
    index, counted = copy.target.index, {f.var: f for f in loops if f.step == 1}
    along = [next((counted[name] for name in i.names if name in counted), None) for i in index]
    plain = [Affine.of(f.var) if f is not None else Affine() for f in along]
    if list(index) != plain or len(loops) != sum(f is not None for f in along):
        raise RefusedError(f"{b.name} is not copied element by element")
    last = along[-1].var if along and along[-1] is not None else ""
    if not last or any(i[last] != (dim == len(copy.value.index) - 1) for dim, i in enumerate(copy.value.index)):
        raise RefusedError(f"what lies side by side in {b.name} does not in {copy.value.buffer}")
    return _Copy(b.name, tuple(along), conditions, copy.value)


def _reached(users: Sequence[Statement], around: tuple[Around, ...], b: Buffer) -> list[int]:
    """The last element along each dimension that is read.

    Raises:
        RefusedError: a window begins in a row, and ends in the next one.
    """
    found = [use for user in users for use in uses(user, b.name)]
    ends = [[bounds_of(index, (*around, *use.loops)) for index in use.access.index] for use in found]
    for each in ends:
        for (low, high), extent in zip(each, b.shape, strict=True):
            if low < 0 or high >= extent:
                raise RefusedError(f"what is read of {b.name}{list(b.shape)} goes beyond a row of it")
    return [max(each[dim][1] for each in ends) for dim in range(len(b.shape))]
