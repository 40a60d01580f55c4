"""Walks over a tree that primitives share: what it touches, and the same tree with parts of it changed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Literal

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.ops import LOOKUP
from tosaic.backends.cortex_m.program.remembered import remembered
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.text import parse_statement
from tosaic.backends.cortex_m.program.tree import (
    LEAVES,
    Access,
    Alloc,
    Around,
    Assign,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Op,
    Program,
    Reduce,
    Seq,
    Statement,
    Value,
    allocated,
    children,
    names_in,
    walk,
)

How = Literal["read", "write", "add", "max", "min"]
"""How an element is used: `add`, `max` and `min` reduce another number to it."""
REDUCTIONS: tuple[How, ...] = ("add", "max", "min")
"""What may reduce numbers in any order."""

LEVELS = "lmh"
"""What counts lanes in the meaning of an instruction, from the outer level to the inner ones."""


def seq(*parts: Statement) -> Statement:
    """Statements one after another; sequences inside are flat."""
    flat = [p for part in parts for p in (part.body if isinstance(part, Seq) else (part,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def nested(body: Statement, /, **extents: int) -> Statement:
    """Loops around a statement, outermost first."""
    for var, extent in reversed(list(extents.items())):
        body = For(var, extent, body)
    return body


def nest_of(statement: Statement) -> tuple[list[For], Statement]:
    """The loops that stand right inside of each other, outermost first, and what the last of them holds."""
    loops = list[For]()
    while isinstance(statement, For):
        loops.append(statement)
        statement = statement.body
    return loops, statement


def mapped(statement: Statement, change: Callable[[Statement], Statement]) -> Statement:
    """The tree with `change` applied to every statement, inner ones first; equal parts stay the same objects."""
    return change(_with_children(statement, lambda s: mapped(s, change)))


def mapped_down(statement: Statement, change: Callable[[Statement], Statement | None]) -> Statement:
    """The tree with `change` applied to outer statements first; where it gives one, nothing inside is visited."""
    found = change(statement)
    return _with_children(statement, lambda s: mapped_down(s, change)) if found is None else found


def _with_children(s: Statement, change: Callable[[Statement], Statement]) -> Statement:
    """A statement with those right inside of it changed; the same object where none is."""
    if isinstance(s, LEAVES):
        return s
    match s:
        case For():
            body = change(s.body)
            return s if body is s.body else For(s.var, s.extent, body, s.step, s.early, s.kind, s.ahead)
        case Alloc() | Let():
            body = change(s.body)
            return s if body is s.body else replace(s, body=body)
        case If():
            then, otherwise = change(s.then), change(s.otherwise)
            return s if then is s.then and otherwise is s.otherwise else If(s.conditions, then, otherwise)
        case Seq():
            parts = tuple(map(change, s.body))
            return s if all(map(operator.is_, parts, s.body)) else seq(*parts)
    return s


def exchanged(statement: Statement, old: Statement, new: Statement) -> Statement:
    """The tree with one statement, which is the object `old`, exchanged."""
    inside = names_in(old)

    def visit(s: Statement) -> Statement:
        if s is old:
            return new
        return s if isinstance(s, LEAVES) or not inside <= names_in(s) else _with_children(s, visit)

    return visit(statement)


def with_accesses(statement: Statement, change: Callable[[Access], Access], of: Set[str] | None = None) -> Statement:
    """The tree with every access changed; what has none that changes stays the same object.

    Args:
        of: names of buffers: accesses of others stay as they are.
    """

    def visit(s: Statement) -> Statement:
        return s if of is not None and names_in(s).isdisjoint(of) else _with_own(_with_children(s, visit), change)

    return visit(statement)


def at(statement: Statement, values: Mapping[str, Affine | int]) -> Statement:
    """The tree with loop variables replaced."""

    def moved(a: Access) -> Access:
        index = _at(a.index, values)
        return a if index is a.index else Access(a.buffer, index)

    def visit(s: Statement) -> Statement:
        if names_in(s).isdisjoint(values):
            return s
        s = _with_children(s, visit)
        return replace(s, conditions=_at(s.conditions, values)) if isinstance(s, If) else _with_own(s, moved)

    return visit(statement)


def _with_own(s: Statement, change: Callable[[Access], Access]) -> Statement:
    """A statement with its own accesses changed, not those of statements inside; the same object where none is."""
    if isinstance(s, Assign | Reduce):
        target, new = change(s.target), value_with_accesses(s.value, change)
        return s if target is s.target and new is s.value else type(s)(target, new)
    if isinstance(s, Let):
        new = value_with_accesses(s.value, change)
        return s if new is s.value else replace(s, value=new)
    if isinstance(s, Instr | Invoke):
        operands = tuple(map(change, s.operands))
        return s if all(map(operator.is_, operands, s.operands)) else replace(s, operands=operands)
    return s


def value_with_accesses(v: Value, change: Callable[[Access], Access]) -> Value:
    """A value with every access changed; the same object where none is."""
    if isinstance(v, Access):
        return change(v)
    if not isinstance(v, Op):
        return v
    args = tuple(value_with_accesses(arg, change) for arg in v.args)
    return v if all(map(operator.is_, args, v.args)) else Op(v.name, args)


def _at(numbers: tuple[Affine, ...], values: Mapping[str, Affine | int]) -> tuple[Affine, ...]:
    found = tuple([number.at(values) for number in numbers])
    return numbers if all(map(operator.is_, found, numbers)) else found


def accesses(value: Value) -> Iterator[Access]:
    """The elements that a value reads."""
    if isinstance(value, Access):
        yield value
    elif isinstance(value, Op):
        for arg in value.args:
            yield from accesses(arg)


def parts_of(value: Value) -> Iterator[Value]:
    """A value and all values in it, outer ones first."""
    yield value
    if isinstance(value, Op):
        for arg in value.args:
            yield from parts_of(arg)


def with_part(value: Value, old: Value, new: Value) -> Value:
    """A value with a part of it exchanged."""
    if value == old:
        return new
    return Op(value.name, tuple(with_part(a, old, new) for a in value.args)) if isinstance(value, Op) else value


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
        case Op(name="max" | "min" as how, args=(before, value)) if s.target in (before, *_args(before, "low")):
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


def around_of(inner: Statement, outer: Statement) -> tuple[Around, ...] | None:
    """The loops and conditions around a statement in another one, outermost first; None where it does not stand there.

    Of an `If`, only what its `then` holds has it around.
    """
    if outer is inner:
        return ()
    if isinstance(outer, LEAVES) or not names_in(inner) <= names_in(outer):
        return None
    for child in children(outer):
        if (found := around_of(inner, child)) is not None:
            own = (outer,) if isinstance(outer, For | Let) or (isinstance(outer, If) and child is outer.then) else ()
            return (*own, *found)
    return None


def stands_in(inner: Statement, outer: Statement) -> bool:
    """Whether a statement is another one, or stands in it."""
    return around_of(inner, outer) is not None


def under(
    statement: Statement, outside: tuple[Around, ...] = (), name: str = ""
) -> Iterator[tuple[Statement, tuple[Around, ...]]]:
    """Every statement, with what is around it, as `around_of` has it, and what holds in `otherwise` of one condition.

    Args:
        outside: what stands around all of them.
        name: of a loop, a buffer or a variable; statements without it are left out.
    """
    if name and name not in names_in(statement):
        return
    yield statement, outside
    if isinstance(statement, LEAVES):
        return
    match statement:
        case For() | Let():
            yield from under(statement.body, (*outside, statement), name)
        case If():
            yield from under(statement.then, (*outside, statement), name)
            others = tuple(If((c * -1 - 1,), statement.otherwise, statement.then) for c in statement.conditions)
            yield from under(statement.otherwise, (*outside, *(others if len(others) == 1 else ())), name)
        case _:
            for child in children(statement):
                yield from under(child, outside, name)


def without_unread(program: Program) -> Program:
    """The program without constants that nothing reads."""
    read = {access.buffer for _, access in touches(program.body)}
    kept = tuple(b for b in program.arguments if b.memory != "const" or b.name in read)
    return replace(program, arguments=kept)


def loops_of(around: tuple[Around, ...]) -> tuple[For, ...]:
    """The loops among what stands around a statement."""
    return tuple(s for s in around if isinstance(s, For))


def written_out(statement: Statement) -> Statement:
    """The tree with loops written out that are marked `unroll`, or iteration once."""
    return _written_out(statement, {})


def _written_out(s: Statement, values: Mapping[str, int]) -> Statement:
    match s:
        case For() if s.kind == "unroll" or (s.kind == "each" and s.iterations == 1):
            return seq(*(_written_out(s.body, {**values, s.var: position}) for position in s.positions))
        case If():
            s = replace(s, conditions=_at(s.conditions, values))
        case Let():
            s = _with_own(s, lambda a: Access(a.buffer, _at(a.index, values)))
        case Assign() | Reduce() | Instr() | Invoke():
            return at(s, values)
    return _with_children(s, lambda part: _written_out(part, values))
