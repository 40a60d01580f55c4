"""Walks over a tree that primitives share: what it touches, and the same tree with parts of it changed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.program import names_in
from tosaic.backends.cortex_m.program.tree import (
    LEAVES,
    Access,
    Alloc,
    Assign,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Op,
    Reduce,
    Seq,
    Statement,
    Value,
)


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
