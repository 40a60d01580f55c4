"""Primitives on numbers that are reduced: share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import around_of
from tosaic.backends.cortex_m.program.legal import bounds_of, why_not_apart
from tosaic.backends.cortex_m.program.primitives.loops import renamed
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import at, exchanged, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.sharing import Lines, Part, shared_reductions
from tosaic.backends.cortex_m.program.touches import reduced, touches, written_by
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Around,
    Assign,
    Buffer,
    For,
    If,
    Op,
    Reduce,
    RefusedError,
    Seq,
    Statement,
)


@PRIMITIVES.register
class Share(Primitive):
    """`share(S, T)`: each element of `S` is made of reductions `T` that windows have in common. A vector of `S` is the
    reduction of a window of vectors. It is read as soon as it is made. The loops around are written out; conditions of
    windows are decided.
    """

    name = "share"
    takes = ("own", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, new = program.buffer(str(arguments[0])), str(arguments[1])
        fresh(program, new)
        scope, maker, user = _scope(program, b)
        windows = _ReducedWindows.of(program, b, maker, around_of(scope, program.body) or ())
        iterations = _Iterations.of(program, b, user)
        windows.check(user)
        parts = list[Statement]()
        targets, count = dict[Part, Access](), itertools.count()
        outputs = {part: where for where, part in windows.parts.items()}
        making = shared_reductions(*windows.lines)
        lane = windows.lane
        size = sum(each.part not in outputs for each in making)
        for number, each in enumerate(making):
            where = outputs.get(each.part)
            index = (Affine.of(next(count)),) if where is None else tuple(map(Affine.of, where))
            targets[each.part] = target = Access(new if where is None else b.name, (*index, Affine.of(lane)))
            halves = each.halves
            reduction = Op(windows.how, tuple(map(targets.__getitem__, halves))) if halves is not None else None
            value = reduction or windows.element(each.part)
            var = f"{new}l{number}"
            fresh(program, var)
            made = Assign(target, value)
            parts.append(For(var, windows.extent, at(made, {lane: Affine.of(var)})))
            if where is not None:
                parts.append(iterations.at(program, where))
        body = seq(*parts)
        if size:
            body = Alloc(Buffer(new, b.dtype, (size, b.shape[-1]), b.memory), body)
        return Program(program.arguments, exchanged(program.body, scope, Alloc(b, body)), program.host)


def _scope(program: Program, b: Buffer) -> tuple[Alloc, Statement, Statement]:
    """Where a buffer lives, the one statement that makes it, and the one that reads it."""
    scopes = [s for s in program.statements if isinstance(s, Alloc) and s.buffer is b]
    match scopes:
        case [Alloc(body=Seq((maker, user))) as scope] if written_by(maker) == {b.name} and b.name not in written_by(
            user
        ):
            return scope, maker, user
    raise RefusedError(f"{b.name} is not made by one statement for another one behind it")


@dataclass(frozen=True)
class _Iterations:
    """What reads a buffer, vector by vector.

    Args:
        dims: the dimension that each loop counts.
        body: what the loops hold.
    """

    dims: Mapping[str, int]
    body: Statement

    @staticmethod
    def of(program: Program, b: Buffer, user: Statement) -> _Iterations:
        """The iterations of what reads a buffer.

        Raises:
            RefusedError: loops do not go over its vectors one by one.
        """
        reads = [a for _, a in touches(user) if a.buffer == b.name]
        dims, body = dict[str, int](), user
        while isinstance(body, For):
            var = body.var
            mine = [d for d in range(len(b.shape) - 1) if all(a.index[d] == Affine.of(var) for a in reads)]
            if len(mine) != 1 or (body.extent, body.step) != (b.shape[mine[0]], 1):
                break
            if why := why_not_apart(program, body, var):
                raise RefusedError(why)
            dims[var] = mine[0]
            body = body.body
        rest = [d for d in range(len(b.shape) - 1) if d not in dims.values()]
        if any(b.shape[d] > 1 for d in rest) or any(a.index[d] != Affine() for a in reads for d in rest):
            raise RefusedError(f"{b.name} is not read vector by vector")
        return _Iterations(dims, body)

    def at(self, program: Program, where: tuple[int, ...]) -> Statement:
        """The iteration of the vector at an index, with names of its own."""
        iteration = at(self.body, {var: where[d] for var, d in self.dims.items()})
        number = "".join(f"_{where[d]}" for d in self.dims.values())
        return renamed(program, iteration, number) if any(where) else iteration


@dataclass(frozen=True)
class _ReducedWindows:
    """What each vector of a buffer is the reduction of.

    Args:
        how: what reduces.
        lane, extent: of the loop over a vector.
        parts: by the index of a vector, its rows and columns.
        elements: by row and column, what is read.
    """

    how: str
    lane: str
    extent: int
    parts: Mapping[tuple[int, ...], Part]
    elements: Mapping[tuple[int, int], Access]

    @staticmethod
    def of(program: Program, b: Buffer, maker: Statement, around: tuple[Around, ...]) -> _ReducedWindows:
        """Those of a buffer, given what makes it.

        Raises:
            RefusedError: it is made otherwise.
        """
        reader = _ReductionReader(program, b, around)
        reader.read(maker, {}, ())
        if not reader.found or len(reader.ways) != 1 or len(reader.lanes) != 1:
            raise RefusedError(f"vectors of {b.name} are no reductions of one kind")
        reads = [access for found in reader.found.values() for access in found]
        terms = {(access.buffer, *(i.terms for i in access.index)) for access in reads}
        if len(terms) != 1:
            raise RefusedError(f"windows of {b.name} move apart")
        places = {tuple(i.const for i in access.index) for access in reads}
        dims = [d for d, each in enumerate(zip(*places, strict=True)) if len(set(each)) > 1]
        if len(dims) > 2:
            raise RefusedError(f"windows of {b.name} have more than two dimensions")
        elements, parts = dict[tuple[int, int], Access](), dict[tuple[int, ...], Part]()
        for where, found in reader.found.items():
            mine = set[tuple[int, int]]()
            for access in found:
                consts = [access.index[d].const for d in dims]
                row, column = [0] * (2 - len(consts)) + consts
                elements[row, column] = access
                mine.add((row, column))
            rows, columns = (tuple(sorted({each[axis] for each in mine})) for axis in (0, 1))
            if len(mine) != len(rows) * len(columns) or (reader.ways == {"add"} and len(mine) != len(found)):
                raise RefusedError(f"a window of {b.name} is no box")
            parts[where] = rows, columns
        down, across = (list(dict.fromkeys(part[axis] for part in parts.values())) for axis in (0, 1))
        if len({*parts.values()}) != len(parts) or len(down) * len(across) != len(parts):
            raise RefusedError(f"windows of {b.name} are no grid")
        return _ReducedWindows(reader.ways.pop(), *reader.lanes.pop(), parts, elements)

    @property
    def lines(self) -> tuple[list[Lines], list[Lines]]:
        down, across = (list(dict.fromkeys(part[axis] for part in self.parts.values())) for axis in (0, 1))
        return down, across

    def element(self, part: Part) -> Access:
        ((row,), (column,)) = part
        return self.elements[row, column]

    def check(self, user: Statement) -> None:
        """Guard: what is read does not change before it is.

        Raises:
            RefusedError: it does.
        """
        read = {access.buffer for access in self.elements.values()}
        if read & written_by(user):
            raise RefusedError(f"{', '.join(sorted(read & written_by(user)))} changes on the way")


class _ReductionReader:
    """Collects what each vector of a buffer is reduced from."""

    def __init__(self, program: Program, b: Buffer, around: tuple[Around, ...]) -> None:
        self.program, self.b, self.around = program, b, around
        self.found: dict[tuple[int, ...], list[Access]] = {}
        self.begun: dict[tuple[int, ...], int] = {}
        self.ways, self.lanes = set[str](), set[tuple[str, int]]()

    def read(self, s: Statement, values: Mapping[str, int], lanes: tuple[For, ...]) -> None:
        """One statement, at values of the loops around it but for that over a vector."""
        match s:
            case Seq():
                for part in s.body:
                    self.read(part, values, lanes)
            case For() if self._counts_lanes(s):
                self.read(s.body, values, (*lanes, s))
            case For():
                for position in s.positions:
                    self.read(s.body, {**values, s.var: position}, lanes)
            case If():
                self.read(s.then if self._holds(s, values, lanes) else s.otherwise, values, lanes)
            case Assign() | Reduce():
                self._statement(s, values, lanes)
            case _:
                raise RefusedError(f"vectors of {self.b.name} are made by more than reductions")

    def _counts_lanes(self, loop: For) -> bool:
        """Whether a loop goes over the last dimension."""
        found = [a for _, a in touches(loop) if a.buffer == self.b.name]
        return bool(self.b.shape) and loop.step == 1 and all(a.index[-1] == Affine.of(loop.var) for a in found)

    def _holds(self, s: If, values: Mapping[str, int], lanes: tuple[For, ...]) -> bool:
        bounds = [bounds_of(condition.at(values), (*self.around, *lanes)) for condition in s.conditions]
        if any(high < 0 for _, high in bounds):
            return False
        if any(low < 0 for low, _ in bounds):
            raise RefusedError(f"the iteration says what windows of {self.b.name} hold")
        return True

    def _statement(self, s: Assign | Reduce, values: Mapping[str, int], lanes: tuple[For, ...]) -> None:
        how, value = reduced(s)
        where = tuple(i.at(values) for i in s.target.index[:-1])
        if len(lanes) != 1 or s.target.index[-1] != Affine.of(lanes[0].var) or any(i.terms for i in where):
            raise RefusedError(f"no loop goes over vectors of {self.b.name}")
        place = tuple(i.const for i in where)
        if how == "write":
            if not isinstance(value, int) or place in self.found:
                raise RefusedError(f"vectors of {self.b.name} do not begin with a number")
            self.begun[place] = value
            return
        if not isinstance(value, Access) or not self._neutral(how, self.begun.get(place), value):
            raise RefusedError(f"{s} reduces more than what is read")
        self.ways.add(how)
        self.lanes.add((lanes[0].var, lanes[0].extent))
        read = Access(value.buffer, tuple(i.at(values) for i in value.index))
        self.found.setdefault(place, []).append(read)

    def _neutral(self, how: str, first: int | None, value: Access) -> bool:
        """Whether a number that a reduction begins with changes nothing."""
        if first is None:
            return False
        bits = 8 * BYTES[self.program.buffers[value.buffer].dtype]
        return {"add": first == 0, "max": first <= -1 << (bits - 1), "min": first >= (1 << (bits - 1)) - 1}[how]
