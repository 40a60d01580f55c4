"""What a tree says about the order of its turns: which may change places, which may run twice, what a turn touches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.rewriting import How, loops_of, own_buffers, touches, under
from tosaic.backends.cortex_m.program.tree import Access, Assign, For, If, Instr, Program, Reduce, RefusedError


class Use(NamedTuple):
    """An access of a statement, how it is used, and the loops around it, outermost first."""

    how: How
    access: Access
    loops: tuple[For, ...]


def uses(statement: For | If, name: str = "") -> list[Use]:
    """Every use below a statement, of one buffer or of all; loops are those from the statement on."""
    return [
        Use(how, access, loops_of(around))
        for s, around in under(statement)
        if isinstance(s, Assign | Reduce | Instr)
        for how, access in touches(s)
        if name in ("", access.buffer)
    ]


def why_not_apart(program: Program, loop: For, var: str) -> str:
    """Why turns over `var`, a loop at or in `loop`, depend on each other; empty where they do not, or only add up.

    Turns are apart where every buffer that they write is addressed from one place, in strides of `var` that no other
    loop inside reaches across.
    """
    own = own_buffers(loop.body)
    by_buffer: dict[str, list[Use]] = {}
    for use in uses(loop):
        if use.access.buffer not in own:
            by_buffer.setdefault(use.access.buffer, []).append(use)
    for name, found in by_buffer.items():
        if {use.how for use in found} in ({"read"}, {"add"}):
            continue
        if not _strided(program, name, found, var):
            return f"turns of `{var}` meet in {name}"
    return ""


def _strided(program: Program, name: str, found: Sequence[Use], var: str) -> bool:
    """Whether turns over `var` touch different elements of a buffer."""
    addresses = [(program.buffers[name].address(use.access.index), use.loops) for use in found]
    bases = {where.at({f.var: 0 for f in loops}) for where, loops in addresses}
    strides = {abs(where[var]) for where, _ in addresses}
    if len(bases) > 1 or len(strides) > 1 or 0 in strides:
        return False
    own = next(f for _, loops in addresses for f in loops if f.var == var)
    turn = strides.pop()
    below, above = 0, 0
    for where, loops in addresses:
        inside = [(abs(where[f.var]), f) for f in loops if where[f.var] and f.last and f.var != var]
        smaller = [(factor, f) for factor, f in inside if factor * f.step < turn * own.step]
        below = max(below, sum(factor * f.last for factor, f in smaller))
        larger = [factor * (1 if f.early else f.step) for factor, f in inside if factor * f.step >= turn * own.step]
        above = math.gcd(above, *larger)
    return below < turn * own.step and (above == 0 or above > below + turn * own.last)


def why_not_repeatable(program: Program, loop: For) -> str:
    """Why a turn may not run twice; empty where it begins all that it adds to, or reads of what it writes."""
    if why := why_not_apart(program, loop, loop.var):
        return why
    own = own_buffers(loop.body)
    found = [use for use in uses(loop) if use.access.buffer not in own]
    changed = {use.access.buffer for use in found if use.how != "read"}
    only_written = changed - {use.access.buffer for use in found if use.how != "write"}
    begun: dict[str, set[int]] = {}
    for use in found:
        name = use.access.buffer
        if name not in changed - only_written:
            continue
        inside = [f for f in use.loops if f is not loop]
        elements = elements_of(program.buffers[name].address(use.access.index).at({loop.var: 0}), inside)
        if use.how != "write" and not elements <= begun.get(name, set()):
            return f"a turn of `{loop.var}` adds to, or reads, what it did not begin of {name}"
        if use.how == "write":
            begun.setdefault(name, set()).update(elements)
    return ""


def elements_of(where: Affine, loops: Sequence[For]) -> set[int]:
    """All values of an address as its loops turn; variables of other loops count as 0."""
    steps = [[where[f.var] * position for position in f.positions] for f in loops if where[f.var]]
    return {where.const + sum(each) for each in itertools.product(*steps)}


class Window(NamedTuple):
    """What a turn touches along one dimension: `extent` elements from `base` on.

    Args:
        dense: whether none of them is left out.
    """

    base: Affine
    extent: int
    dense: bool


def window_of(indices: Sequence[tuple[Affine, Sequence[For]]]) -> Window:
    """The window of some indices, each with the loops inside of the turn.

    Raises:
        RefusedError: they begin at two places that move apart.
    """
    bases, reached = set[Affine](), set[int]()
    for index, loops in indices:
        inside = [f for f in loops if index[f.var]]
        base = index.at({f.var: 0 for f in inside})
        bases.add(Affine(base.terms))
        reached |= elements_of(
            Affine(tuple(t for t in index.terms if t[0] in {f.var for f in inside}), base.const), inside
        )
    if len(bases) > 1:
        raise RefusedError("two windows of it are in use")
    (outer,) = bases
    extent = max(reached) - min(reached) + 1
    return Window(outer + min(reached), extent, len(reached) == extent)


def bounds_of(index: Affine, around: Sequence[For | If]) -> tuple[int, int]:
    """The least and the greatest value of an index where it stands, given the loops and conditions around it."""
    low, high = index.bounds({f.var: f.last for f in loops_of(tuple(around))})
    for condition in (c for s in around if isinstance(s, If) for c in s.conditions):
        above, below = index - condition, index + condition
        low = max(low, above.const) if not above.terms else low
        high = min(high, below.const) if not below.terms else high
    return low, high
