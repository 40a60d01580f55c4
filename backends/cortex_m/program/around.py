"""What stands around statements: loops, conditions, computed numbers."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.program import children, names_in
from tosaic.backends.cortex_m.program.tree import LEAVES, Around, For, If, Let, Statement


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


def loops_of(around: tuple[Around, ...]) -> tuple[For, ...]:
    """The loops among what stands around a statement."""
    return tuple(s for s in around if isinstance(s, For))
