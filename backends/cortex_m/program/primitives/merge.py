"""The primitive that merges loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.legal import Use, uses
from tosaic.backends.cortex_m.program.primitives.loops import plain
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import at, exchanged, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import tables_of, touches, written_by
from tosaic.backends.cortex_m.program.tree import Alloc, For, RefusedError, Seq, Statement


@PRIMITIVES.register
class Merge(Primitive):
    """`merge(x, y)`: two loops of as many iterations, `y` behind `x`, become one, where `y` was. What stands between
    has nothing to do with `x`. `distribute` is the opposite."""

    name = "merge"
    takes = ("plain", "alike_loop")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        first, second = (plain(program.loop(str(name))) for name in arguments)
        around = next((s for s in program.statements if isinstance(s, Seq) and any(p is first for p in s.body)), None)
        passed = _between(around, first, second) if around is not None else None
        if around is None or passed is None:
            raise RefusedError(f"`{second.var}` is not behind `{first.var}`")
        if not iterate_alike(first, second):
            raise RefusedError(f"`{first.var}` and `{second.var}` iterate over other numbers")
        if any(_meet(first, s) for s in passed):
            raise RefusedError(f"`{first.var}` does not move past what is between")
        moved = at(second.body, {second.var: Affine.of(first.var)})
        _guard_order(program, first, replace(first, body=moved))
        merged = replace(first, body=seq(first.body, moved))
        left = [exchanged(s, second, merged) for s in around.body if s is not first]
        return replace(program, body=exchanged(program.body, around, seq(*left)))


def iterate_alike(loop: For, other: For) -> bool:
    """Whether loops iterate over the same numbers."""
    return (loop.extent, loop.step, loop.early) == (other.extent, other.step, other.early)


def _between(around: Seq, first: For, second: For) -> Sequence[Statement] | None:
    """What stands between two loops, the second one perhaps where a buffer lives; None where it is not behind."""
    at_first = next(number for number, s in enumerate(around.body) if s is first)
    parts, passed = around.body[at_first + 1 :], list[Statement]()
    while not any(s is second for s in parts):
        *others, last = parts or (around,)
        if not isinstance(last, Alloc):
            return None
        passed += others
        parts = last.body.body if isinstance(last.body, Seq) else (last.body,)
    return [*passed, *itertools.takewhile(lambda s: s is not second, parts)]


def _meet(one: Statement, other: Statement) -> bool:
    """Whether one of two statements writes a buffer that the other touches; both may add to one."""
    ways = dict[str, set[str]]()
    for how, access in (*touches(one), *touches(other)):
        ways.setdefault(access.buffer, set()).add(how)
    shared = {access.buffer for _, access in touches(one)} & {access.buffer for _, access in touches(other)}
    return any(ways[name] not in ({"read"}, {"add"}) for name in shared)


def _guard_order(program: Program, first: For, second: For) -> None:
    """Guard: no iteration of the second loop needs that later iterations of the first have run, or undoes what these
    do.

    Raises:
        RefusedError: what they touch may meet.
    """
    if first.iterations == 1:
        return
    before, behind = uses(first), uses(second)
    if (tables_of(first) | tables_of(second)) & (written_by(first) | written_by(second)):
        raise RefusedError("values say what is read of a buffer that changes")
    for one, other in itertools.product(before, behind):
        name = one.access.buffer
        if name == other.access.buffer and {one.how, other.how} != {"read"} and not _passes(program, one, other):
            raise RefusedError(f"iterations of `{first.var}` and of what is behind meet in {name}")


def _passes(program: Program, one: Use, other: Use) -> bool:
    """Whether what `one` touches in later iterations of a loop lies apart from what `other` touches in an iteration."""
    b, loop = program.buffers[one.access.buffer], one.loops[0]
    (low, high, start), (least, most, begin) = (_range(b.address(use.access.index), use) for use in (one, other))
    stride = start[loop.var] * loop.step
    if start.terms != begin.terms:
        return False
    return low + stride > most if stride > 0 else high + stride < least if stride < 0 else high < least or most < low


def _range(where: Affine, use: Use) -> tuple[int, int, Affine]:
    """The least and the greatest element of a use in an iteration of its first loop, and what loops from there on
    add."""
    low, high = where.const, where.const
    inside = use.loops[1:]
    for loop in inside:
        reach = where[loop.var] * loop.last
        low, high = low + min(reach, 0), high + max(reach, 0)
    names = {loop.var for loop in inside}
    return low, high, Affine(tuple(term for term in where.terms if term[0] not in names))
