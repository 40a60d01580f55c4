"""Primitives on instructions: select, unmask."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from tosaic.backends.cortex_m.isa.isa import ISAS, rows_of
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import under
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.legal import bounds_of
from tosaic.backends.cortex_m.program.primitives.loops import with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import at, mapped, mapped_down, nest_of, seq
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import LEVELS, meaning, touches
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    REGISTERS,
    Access,
    Assign,
    Buffer,
    For,
    Instr,
    Op,
    Reduce,
    RefusedError,
    Statement,
    Value,
)

_Rows: TypeAlias = Mapping[Hashable, Sequence[Row]]
"""Rows by the shape of what they mean."""


@PRIMITIVES.register
class Select(Primitive):
    """`select(k, dsp)`: each statement in loop `k` becomes an instruction that means the same.

    A loop around one statement becomes an instruction of so many lanes, or of more, of which a mask takes the first; or
    its iterations become one each.
    """

    name = "select"
    takes = ("loop", "isa")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, name = program.loop(str(arguments[0])), str(arguments[1])
        if name not in ISAS.known():
            raise RefusedError(f"there is no instruction set `{name}`", hint=f"there are {', '.join(ISAS.known())}")
        if any(isinstance(s, Instr) for s in walk(loop)):
            raise RefusedError(f"`{loop.var}` holds instructions already")
        rows, buffers = _by_shape(rows_of(name)), program.buffers

        def leaf(s: Statement) -> Statement | None:
            match s:
                case For(body=Assign() | Reduce()) if s is not loop:
                    return _selected(s, rows, buffers, name)
                case For(body=For()) if s is not loop and isinstance(nest_of(s)[1], Assign | Reduce):
                    return _matched(s, rows, buffers)
                case Assign() | Reduce():
                    return _selected(s, rows, buffers, name)
            return None

        body = mapped_down(loop.body, leaf)
        return with_loop(program, loop, replace(loop, body=body))


@PRIMITIVES.register
class Unmask(Primitive):
    """`unmask(x)`: loads in loop `x` that a mask keeps from lanes read all lanes, as there is memory behind."""

    name = "unmask"
    takes = ("masked",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = program.loop(str(arguments[0]))
        loads = [(s, around) for s, around in under(program.body) if loop in around and _is_short_load(s)]
        for s, around in loads:
            assert isinstance(s, Instr)
            register, source = (access.buffer for access in s.operands)
            _, last = bounds_of(program.buffers[source].address(s.operands[1].index), around)
            b = program.buffers[source]
            if last + s.row.lanes > b.size + (SLACK // BYTES[b.dtype] if b.memory == "scratch" else 0):
                raise RefusedError(f"behind {s} there is nothing to read")
            if sum(access.buffer == register for how, access in touches(program.body) if how != "read") > 1:
                raise RefusedError(f"lanes of {register} are written elsewhere, too")
        if not loads:
            raise RefusedError(f"no mask keeps lanes from a load in `{loop.var}`")
        whole = {id(s) for s, _ in loads}

        def unmasked(s: Statement) -> Statement:
            return replace(s, limit=0) if isinstance(s, Instr) and id(s) in whole else s

        return with_loop(program, loop, replace(loop, body=mapped(loop.body, unmasked)))


def _is_short_load(s: Statement) -> bool:
    """Whether a mask keeps lanes from an instruction that brings what lies in memory side by side to a vector."""
    if not isinstance(s, Instr) or not s.limit or s.row.apart or s.row.gathers:
        return False
    target, *sources = s.row.formals
    return (target.memory, *(f.memory for f in sources)) == ("q", "m") and meaning(s.row).target.buffer == target.name


def _selected(s: For | Assign | Reduce, rows: _Rows, buffers: Mapping[str, Buffer], isa: str) -> Statement:
    """The instruction for a statement, or for a loop around one.

    Raises:
        RefusedError: there is none.
    """
    if (found := _matched(s, rows, buffers)) is not None:
        return found
    if isinstance(s, For):
        iterations = [_selected(at(s.body, {s.var: position}), rows, buffers, isa) for position in s.positions]  # type: ignore[arg-type]
        return seq(*iterations)
    raise RefusedError(f"no instruction of {isa} does {s}")


def _matched(s: For | Assign | Reduce, rows: _Rows, buffers: Mapping[str, Buffer]) -> Instr | None:
    loops, leaf = nest_of(s)
    assert isinstance(leaf, Assign | Reduce)
    if any(loop.step != 1 for loop in loops):
        return None
    lanes, inner = math.prod(loop.extent for loop in loops), tuple(loop.extent for loop in loops[1:])
    alike = [row for row in rows.get(_shape(leaf), ()) if row.inner == inner]
    exact = [(row, 0) for row in alike if row.lanes == lanes]
    masked = [(row, lanes) for row in alike if row.masks and lanes < row.lanes and not inner]
    found = [(row, limit, lanes > 1) for row, limit in (*exact, *masked)]
    # Of one lane, rows come first whose lanes lie as those of more would.
    for row, limit, counts in ([(row, limit, True) for row, limit, _ in found] if loops and lanes == 1 else []) + found:
        what, match = meaning(row), _Match(row, loops, buffers, lanes, counts)
        if match.unify(what.target, leaf.target) and match.unify(what.value, leaf.value):
            operands = tuple(match.bound[formal.name] for formal in row.formals)
            return Instr(row, operands, limit, match.stride, match.inner)
    return None


@lru_cache(maxsize=64)
def _by_shape(rows: tuple[Row, ...]) -> _Rows:
    found = dict[Hashable, list[Row]]()
    for row in rows:
        found.setdefault(_shape(meaning(row)), []).append(row)
    return found


def _shape(part: Assign | Reduce | Value) -> Hashable:
    """A statement or a value without its operands: what differs in it means different things."""
    match part:
        case Assign() | Reduce():
            return type(part), _shape(part.value)
        case Op():
            return part.name, tuple(map(_shape, part.args))
        case Access():
            return None
    return part


class _Match:
    """The operands of a row as its meaning is laid over a statement whose `lanes` lanes `loops` count.

    Args:
        counts: whether lanes lie as `loops` count them.
    """

    def __init__(self, row: Row, loops: Sequence[For], buffers: Mapping[str, Buffer], lanes: int, counts: bool) -> None:
        self.row, self.buffers, self.lanes, self.counts = row, buffers, lanes, counts
        self.stride, self.inner = 1, (1,) * len(loops[1:])
        self.counted = dict(zip(LEVELS, loops, strict=False))
        self.formals = {formal.name: formal for formal in row.formals}
        self.bound: dict[str, Access] = {}

    def unify(self, formal: Value, actual: Value) -> bool:
        """Whether `actual` is what `formal` means; operands are bound on the way."""
        match formal, actual:
            case Access(), Access():
                return self._bind(formal, actual)
            case Op(), Op():
                same = formal.name == actual.name and len(formal.args) == len(actual.args)
                return same and all(self.unify(f, a) for f, a in zip(formal.args, actual.args, strict=True))
        return formal == actual

    def _bind(self, formal: Access, actual: Access) -> bool:
        what, b = self.formals[formal.buffer], self.buffers[actual.buffer]
        if what.dtype != b.dtype or what.memory != (b.memory if b.in_registers else "m"):
            return False
        index = formal.index[0] if formal.index else Affine()
        where = b.address(actual.index)
        strides = {level: where[loop.var] for level, loop in self.counted.items()}
        if formal.buffer == self.row.apart:
            self.stride, *inner = strides.values() or (0,)
            self.inner = tuple(inner)
            if not self._reaches(b):
                return False
        elif self.counts and any(
            (loop.extent > 1 or self.lanes == 1) and strides[level] != index[level]
            for level, loop in self.counted.items()
        ):
            return False
        first = {loop.var: 0 for loop in self.counted.values()}
        start = where.at(first) - index.const
        unit = b.lanes if b.in_registers else max(1, self.row.align // BYTES[b.dtype])
        if not start.is_multiple(unit):
            return False
        base = tuple(i.at(first) for i in actual.index)
        if index.const:
            base = (*base[:-1], base[-1] - index.const)
        return self.bound.setdefault(formal.buffer, Access(b.name, base)) == Access(b.name, base)

    def _reaches(self, b: Buffer) -> bool:
        """Whether lanes lie as far apart in a buffer as the lanes of a vector hold, and not side by side."""
        row, extents = self.row, [loop.extent for loop in self.counted.values()]
        wide = row.align if row.dense else REGISTERS["q"] // row.lanes
        strides = (self.stride, *self.inner)
        far = sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=False))
        if row.dense and self.inner[-1:] != (1,):
            return False
        inside = [lanes * stride for lanes, stride in zip(row.inner, self.inner, strict=True)] or [1]
        alike = list(strides[: len(inside)]) == inside
        return not alike and 0 <= far * BYTES[b.dtype] < 1 << (8 * wide)
