"""The primitive that merges neighbors."""

from __future__ import annotations

import itertools
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.legal import Use, uses
from tosaic.backends.cortex_m.program.primitives.loops import plain
from tosaic.backends.cortex_m.program.rewriting import at, exchanged, seq, tables_of, written_by
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.tree import For, Program, RefusedError, Seq


@PRIMITIVES.register
class Merge(Primitive):
    """`merge(x, y)`: two loops of as many turns, `y` right behind `x`, become one. `distribute` is the opposite."""

    name = "merge"
    takes = ("loop", "loop")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        first, second = (plain(program.loop(str(name))) for name in arguments)
        around = next((s for s in program.statements if isinstance(s, Seq) and _follows(s, first, second)), None)
        if around is None:
            raise RefusedError(f"`{second.var}` is not right behind `{first.var}`")
        if (first.extent, first.step, first.early) != (second.extent, second.step, second.early):
            raise RefusedError(f"`{first.var}` and `{second.var}` turn over other numbers")
        moved = at(second.body, {second.var: Affine.of(first.var)})
        _guard_order(program, first, replace(first, body=moved))
        merged = replace(first, body=seq(first.body, moved))
        left = [merged if s is first else s for s in around.body if s is not second]
        return replace(program, body=exchanged(program.body, around, seq(*left)))


def _follows(s: Seq, first: For, second: For) -> bool:
    return any(a is first and b is second for a, b in itertools.pairwise(s.body))


def _guard_order(program: Program, first: For, second: For) -> None:
    """Guard: no turn of the second loop needs that later turns of the first have run, or undoes what these do.

    Raises:
        RefusedError: what they touch may meet.
    """
    if first.turns == 1:
        return
    before, behind = uses(first), uses(second)
    if (tables_of(first) | tables_of(second)) & (written_by(first) | written_by(second)):
        raise RefusedError("values say what is read of a buffer that changes")
    for one, other in itertools.product(before, behind):
        name = one.access.buffer
        if name == other.access.buffer and {one.how, other.how} != {"read"} and not _passes(program, one, other):
            raise RefusedError(f"turns of `{first.var}` and of what is behind meet in {name}")


def _passes(program: Program, one: Use, other: Use) -> bool:
    """Whether what `one` touches in later turns of a loop lies apart from what `other` touches in a turn."""
    b, loop = program.buffers[one.access.buffer], one.loops[0]
    (low, high, start), (least, most, begin) = (_range(b.address(use.access.index), use) for use in (one, other))
    stride = start[loop.var] * loop.step
    if start.terms != begin.terms:
        return False
    return low + stride > most if stride > 0 else high + stride < least if stride < 0 else high < least or most < low


def _range(where: Affine, use: Use) -> tuple[int, int, Affine]:
    """The least and the greatest element of a use in a turn of its first loop, and what loops from there on add."""
    low, high = where.const, where.const
    inside = use.loops[1:]
    for loop in inside:
        reach = where[loop.var] * loop.last
        low, high = low + min(reach, 0), high + max(reach, 0)
    names = {loop.var for loop in inside}
    return low, high, Affine(tuple(term for term in where.terms if term[0] not in names))
