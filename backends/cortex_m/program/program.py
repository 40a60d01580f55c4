"""A program: arguments, statements, and what the host does to constants; and walks over its statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from tosaic.backends.cortex_m.program.host import Derive, Pack
from tosaic.backends.cortex_m.program.places import Overlap
from tosaic.backends.cortex_m.program.remembered import remembered
from tosaic.backends.cortex_m.program.tree import (
    LEAVES,
    Access,
    Alloc,
    Buffer,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Op,
    RefusedError,
    Seq,
    Statement,
    Value,
)


@dataclass(frozen=True)
class Program:
    """Arguments, statements, what the host does to constants, in order, and where it is told, what may share memory."""

    arguments: tuple[Buffer, ...]
    body: Statement
    host: tuple[Pack | Derive, ...] = ()
    over: tuple[Overlap, ...] | None = None

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Every statement, outer ones first."""
        return tuple(walk(self.body))

    @cached_property
    def buffers(self) -> Mapping[str, Buffer]:
        return MappingProxyType({b.name: b for b in (*self.arguments, *allocated(self.body))})

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        """Those that it reads, in order."""
        return tuple(b for b in self.arguments if b.memory == "in")

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        """Those that it writes, in order."""
        return tuple(b for b in self.arguments if b.memory == "out")

    @cached_property
    def loops(self) -> Mapping[str, tuple[For, ...]]:
        """The loops by variable. Equal names stand in different branches."""
        found: dict[str, tuple[For, ...]] = {}
        for s in self.statements:
            if isinstance(s, For):
                found[s.var] = (*found.get(s.var, ()), s)
        return MappingProxyType(found)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its buffers and loops."""
        return names_in(self.body).union(b.name for b in self.arguments)

    def loop(self, var: str) -> For:
        """The loop over `var`.

        Raises:
            RefusedError: there is none, or there are several.
        """
        found = _loops_over(var, self.body)
        if len(found) != 1:
            raise RefusedError(f"there is no loop `{var}`" if not found else f"`{var}` is several loops")
        return found[0]

    def buffer(self, name: str) -> Buffer:
        """The buffer `name`.

        Raises:
            RefusedError: there is none.
        """
        if name not in self.buffers:
            raise RefusedError(f"there is no buffer `{name}`")
        return self.buffers[name]


def _loops_over(var: str, statement: Statement) -> list[For]:
    if isinstance(statement, LEAVES) or var not in names_in(statement):
        return []
    own = [statement] if isinstance(statement, For) and statement.var == var else []
    return own + [loop for child in children(statement) for loop in _loops_over(var, child)]


def children(statement: Statement) -> tuple[Statement, ...]:
    match statement:
        case For() | Let() | Alloc():
            return (statement.body,)
        case If():
            return (statement.then, statement.otherwise)
        case Seq():
            return statement.body
    return ()


@remembered
def names_in(statement: Statement) -> frozenset[str]:
    """The names of loops and of buffers at and below a statement, and of variables in its indices and conditions."""
    match statement:
        case For(var=own):
            return names_in(statement.body) | {own}
        case Alloc():
            return names_in(statement.body) | {statement.buffer.name}
        case Seq():
            return frozenset().union(*map(names_in, statement.body))
        case Let(var=own):
            return names_in(statement.body) | {own, *_names_of(statement.value)}
        case If():
            told = {name for condition in statement.conditions for name, _ in condition.terms}
            return names_in(statement.then) | names_in(statement.otherwise) | told
        case Instr() | Invoke():
            return frozenset(_names_of(*statement.operands))
    return frozenset(_names_of(statement.target, statement.value))


def _names_of(*values: Value) -> set[str]:
    found, left = set[str](), list(values)
    while left:
        value = left.pop()
        if isinstance(value, Access):
            found.add(value.buffer)
            found.update(name for number in value.index for name, _ in number.terms)
        elif isinstance(value, Op):
            left.extend(value.args)
    return found


@remembered
def allocated(statement: Statement) -> tuple[Buffer, ...]:
    """The buffers that live inside of a statement, outer ones first."""
    inside = [b for child in children(statement) if not isinstance(child, LEAVES) for b in allocated(child)]
    return (statement.buffer, *inside) if isinstance(statement, Alloc) else tuple(inside)


def walk(statement: Statement) -> list[Statement]:
    """Every statement, outer ones first."""
    found, left = [], [statement]
    while left:
        found.append(s := left.pop())
        if not isinstance(s, LEAVES):
            left.extend(reversed(children(s)))
    return found
