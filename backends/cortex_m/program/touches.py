"""What statements touch: elements that they read, write and add to, and tables; what an instruction means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Literal

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.ops import LOOKUP
from tosaic.backends.cortex_m.program.program import Program, allocated, children, walk
from tosaic.backends.cortex_m.program.remembered import remembered
from tosaic.backends.cortex_m.program.rewriting import accesses, parts_of, with_accesses
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.text import parse_statement
from tosaic.backends.cortex_m.program.tree import Access, Assign, For, Instr, Invoke, Let, Op, Reduce, Statement, Value

How = Literal["read", "write", "add", "max", "min"]
"""How an element is used: `add`, `max` and `min` reduce another number to it."""


REDUCTIONS: tuple[How, ...] = ("add", "max", "min")
"""What may reduce numbers in any order."""


LEVELS = "lmh"
"""What counts lanes in the meaning of an instruction, from the outer level to the inner ones."""


@lru_cache(maxsize=256)
def meaning(row: Row) -> Assign | Reduce:
    """What an instruction does in lane `l`, and `m` and `h` of inner levels, on its formal operands."""
    return parse_statement(row.meaning)


@lru_cache(maxsize=256)
def changes_target(row: Row) -> bool:
    """Whether what an instruction writes depends on what was there, beside sums."""
    what = meaning(row)
    return any(access.buffer == what.target.buffer for access in accesses(what.value))


def meaning_of(instr: Instr, lane: str = "l") -> For:
    """An instruction as the loops that it stands for, on its operands; their variables begin with `lane`."""
    base = {f.name: o for f, o in zip(instr.row.formals, instr.operands, strict=True)}

    def actual(formal: Access) -> Access:
        start = base[formal.buffer]
        if not formal.index or not start.index:  # All lanes are one number.
            return start
        *outer, inner = start.index
        return Access(start.buffer, (*outer, inner + formal.index[0].at(_strides(instr, formal.buffer, lane))))

    body: Statement = with_accesses(meaning(instr.row), actual)
    inner = instr.row.inner
    for level, lanes in reversed([*zip(LEVELS[1:], inner, strict=False)]):
        body = For(f"{lane}{level}", lanes, body)
    return For(lane, instr.lanes // math.prod(inner), body)


def _strides(instr: Instr, formal: str, lane: str) -> Mapping[str, Affine]:
    """What lanes of each level count of an operand."""
    names = (lane, *(f"{lane}{level}" for level in LEVELS[1 : 1 + len(instr.row.inner)]))
    strides = (instr.stride, *instr.inner) if formal == instr.row.apart else (1,) * len(names)
    return {level: Affine.of(n) * stride for level, n, stride in zip(LEVELS, names, strides, strict=False)}


@lru_cache(maxsize=256)
def _windows(row: Row) -> Mapping[str, Sequence[Affine]]:
    """The elements of each operand that a lane of an instruction touches, counted from where the operand begins."""
    what, found = meaning(row), dict[str, list[Affine]]()
    for access in (what.target, *accesses(what.value)):
        found.setdefault(access.buffer, []).append(access.index[0] if access.index else Affine())
    return found


def window_bounds(instr: Instr, formal: str) -> tuple[int, int]:
    """The first and the last element that an instruction touches of an operand, counted from where that begins."""
    inner, strides = instr.row.inner, _strides(instr, formal, "l")
    last = {"l": instr.lanes // math.prod(inner) - 1}
    last |= {f"l{level}": lanes - 1 for level, lanes in zip(LEVELS[1:], inner, strict=False)}
    ends = [index.at(strides).bounds(last) for index in _windows(instr.row).get(formal, ())]
    return min((low for low, _ in ends), default=0), max((high for _, high in ends), default=0)


def touches(statement: Statement) -> Iterator[tuple[How, Access]]:
    """Every access below, and how, in order; of instructions and calls, the starts of their windows."""
    return chain.from_iterable(map(own_touches, walk(statement)))


@remembered
def own_touches(s: Statement) -> tuple[tuple[How, Access], ...]:
    """Those of a statement itself, not of what it holds."""
    if isinstance(s, Let):
        return tuple(("read", access) for access in accesses(s.value))
    if isinstance(s, Assign | Reduce):
        how, value = reduced(s)
        return (*(("read", access) for access in accesses(value)), (how, s.target))
    if isinstance(s, Invoke):
        return tuple(("read" if b.memory in ("in", "const") else "write", at) for b, at in s.windows)
    return tuple(_of_operands(s)) if isinstance(s, Instr) else ()


def _of_operands(s: Instr) -> Iterator[tuple[How, Access]]:
    what = meaning(s.row)
    how, value = reduced(what)
    read = {access.buffer for access in accesses(value)}
    for formal, operand in zip(s.row.formals, s.operands, strict=True):
        if formal.name in read:
            yield "read", operand
        if formal.name == what.target.buffer:
            yield how, operand


def reduced(s: Assign | Reduce) -> tuple[How, Value]:
    """How a statement uses its target, and the value that it writes, or reduces to it."""
    if isinstance(s, Reduce):
        return "add", s.value
    match s.value:
        case Op(name="max" | "min" as how, args=(before, value)):
            kept = [before, *_args(before, "low")]
            if s.target in kept:
                return how, value  # type: ignore[return-value]
    return "write", s.value


def _args(value: Value, prefix: str) -> tuple[Value, ...]:
    """The arguments of an operation whose name begins so."""
    return value.args if isinstance(value, Op) and value.name.startswith(prefix) else ()


@remembered
def tables_of(statement: Statement) -> frozenset[str]:
    """The names of buffers in which values say what is read."""
    inside = frozenset[str]().union(*map(tables_of, children(statement)))
    if not isinstance(statement, Assign | Reduce | Let):
        return inside
    found = (part for part in parts_of(statement.value) if isinstance(part, Op) and part.name == LOOKUP)
    return inside.union(part.args[0].buffer for part in found if isinstance(part.args[0], Access))


@remembered
def written_by(statement: Statement) -> frozenset[str]:
    """The names of buffers that a statement writes or adds to."""
    own = (access.buffer for how, access in own_touches(statement) if how != "read")
    return frozenset(own).union(*map(written_by, children(statement)))


@remembered
def held_by(statement: Statement) -> frozenset[str]:
    """The names of buffers that instructions, or calls, read or write as they lie."""
    own = (operand.buffer for operand in statement.operands) if isinstance(statement, Instr | Invoke) else ()
    return frozenset(own).union(*map(held_by, children(statement)))


def own_buffers(statement: Statement) -> set[str]:
    """The names of buffers that live inside of a statement."""
    return {buffer.name for buffer in allocated(statement)}


def without_unread(program: Program) -> Program:
    """The program without constants that nothing reads."""
    read = {access.buffer for _, access in touches(program.body)}
    kept = tuple(b for b in program.arguments if b.memory != "const" or b.name in read)
    return replace(program, arguments=kept)
