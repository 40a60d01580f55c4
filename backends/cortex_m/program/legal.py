"""What a tree says about the order of its iterations: which may change places, which may run twice, what an iteration
touches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.program import Program, children, names_in, walk
from tosaic.backends.cortex_m.program.rewriting import nest_of
from tosaic.backends.cortex_m.program.touches import REDUCTIONS, How, meaning_of, own_buffers, own_touches, touches
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Around,
    Assign,
    Buffer,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Reduce,
    Statement,
)


class Use(NamedTuple):
    """An access of a statement, how it is used, and the loops around it, outermost first.

    Args:
        sure: whether it happens whatever conditions say.
    """

    how: How
    access: Access
    loops: tuple[For, ...]
    sure: bool


def uses(statement: Statement, name: str = "") -> list[Use]:
    """Every use below a statement in order, of one buffer or of all; loops are those from the statement on.

    Behind an `If` stand, once more, the elements that both of its branches write: these are sure.
    """
    return [use for use in _uses(statement, (), True, name) if name in ("", use.access.buffer)]


def _uses(s: Statement, loops: tuple[For, ...], sure: bool, name: str) -> Iterator[Use]:
    if name and name not in names_in(s):
        return
    match s:
        case For():
            yield from _uses(s.body, (*loops, s), sure, name)
        case Let():
            yield from (Use(how, access, loops, sure) for how, access in own_touches(s))
            yield from _uses(s.body, (*loops, any_iteration(s)), False, name)
        case If():
            then, otherwise = (list(_uses(part, loops, False, name)) for part in (s.then, s.otherwise))
            yield from (*then, *otherwise)
            written = {_place(use, len(loops)) for use in otherwise if use.how == "write"}
            yield from (
                use._replace(sure=sure) for use in then if use.how == "write" and _place(use, len(loops)) in written
            )
        case Assign() | Reduce() | Instr() | Invoke():
            yield from (Use(how, access, (*loops, *lanes), sure) for how, access, lanes in windows_touched(s))
        case _:
            for child in children(s):
                yield from _uses(child, loops, sure, name)


def windows_touched(s: Statement) -> Iterator[tuple[How, Access, tuple[For, ...]]]:
    """The accesses of a statement itself, each with the loops over its window; no other loop has their names."""
    match s:
        case Instr():
            lanes, what = nest_of(meaning_of(s))
            for how, access in touches(what):
                yield how, access, tuple(lanes)
        case Invoke():
            for (how, start), (window, _) in zip(own_touches(s), s.windows, strict=True):
                names = [f"t{dim}" for dim in range(len(window.shape))]
                outer = len(start.index) - len(names)
                index = (*start.index[:outer], *(i + name for i, name in zip(start.index[outer:], names, strict=True)))
                loops = tuple(For(name, extent, s) for name, extent in zip(names, window.shape, strict=True))
                yield how, Access(start.buffer, index), loops
        case _:
            for how, access in own_touches(s):
                yield how, access, ()


def any_iteration(s: Let) -> For:
    """A loop over all numbers that a variable may be, of which one is executed at most."""
    return For(s.var, s.extent, s.body)


def _place(use: Use, depth: int) -> tuple[object, ...]:
    """What a use touches, whatever its loops from `depth` on are called."""
    inner = use.loops[depth:]
    names = {f.var: Affine.of(f"{depth}") for depth, f in enumerate(inner)}
    return use.access.buffer, *(i.at(names) for i in use.access.index), *(tuple(f.positions) for f in inner)


def why_not_apart(program: Program, loop: For, *names: str) -> str:
    """Why iterations over variables of loops at or in `loop` depend on each other; empty where they do not, or only add
    up.

    Iterations are apart where a variable alone counts a dimension of every buffer that they write. They are apart, too,
    where it addresses the buffer from places that constants tell apart, in strides that none of these, and no other
    loop inside, reaches across. Of several variables, each buffer may have its own.
    """
    windows = any(isinstance(s, Instr | Invoke) for s in walk(loop))
    for b, found in changed_in(program, loop):
        counted = () if windows else names
        if any(_counts_dimension(found, var) for var in counted):
            continue
        if not _reduces(found) and not any(_strided(b, found, var) for var in names):
            return f"iterations of {' and '.join(f'`{var}`' for var in names)} meet in {b.name}"
    return ""


def _reduces(found: Sequence[Use]) -> bool:
    """Whether all uses reduce numbers to elements in one way."""
    ways = {use.how for use in found}
    return len(ways) == 1 and ways <= {*REDUCTIONS}


def changed_in(program: Program, loop: For) -> list[tuple[Buffer, list[Use]]]:
    """The buffers from outside that iterations of a loop write or add to, each with its uses; loops are those from it
    on."""
    own, by_buffer = own_buffers(loop.body), dict[str, list[Use]]()
    for use in uses(loop):
        by_buffer.setdefault(use.access.buffer, []).append(use)
    changed = {name for name, found in by_buffer.items() if any(use.how != "read" for use in found)}
    return [(program.buffers[name], found) for name, found in by_buffer.items() if name in changed - own]


def _counts_dimension(found: Sequence[Use], var: str) -> bool:
    """Whether a variable alone says where each use, inside of all dimensions, lies along one of them."""
    along = zip(*(use.access.index for use in found), strict=True)
    return any(all(index == Affine.of(var) for index in each) for each in along)


def _strided(b: Buffer, found: Sequence[Use], var: str) -> bool:
    """Whether iterations over `var` touch different elements of a buffer."""
    addresses = [(b.address(use.access.index), use.loops) for use in found]
    bases = [where.at({f.var: 0 for f in loops}) for where, loops in addresses]
    offsets = [base - bases[0] for base in bases]
    strides = {where[var] for where, _ in addresses}
    if any(offset.terms for offset in offsets) or len(strides) > 1 or 0 in strides:
        return False
    own = next(f for _, loops in addresses for f in loops if f.var == var)
    stride = abs(strides.pop())
    apart = stride * _least_distance(own)
    low, high, above = 0, 0, 0
    for (where, loops), offset in zip(addresses, offsets, strict=True):
        inside = [(where[f.var], f) for f in loops if where[f.var] and f.last and f.var != var]
        units = [abs(factor) * math.gcd(f.step, f.last) for factor, f in inside]
        ends = [factor * f.last for (factor, f), unit in zip(inside, units, strict=True) if unit < apart]
        low = min(low, offset.const + sum(e for e in ends if e < 0))
        high = max(high, offset.const + sum(e for e in ends if e > 0))
        above = math.gcd(above, *(unit for unit in units if unit >= apart))
    return high - low < apart and (above == 0 or above > high - low + stride * own.last)


def _least_distance(loop: For) -> int:
    """Between the positions of two iterations."""
    return loop.last - (loop.iterations - 2) * loop.step if loop.early and loop.iterations > 1 else loop.step


def why_not_repeatable(program: Program, loop: For) -> str:
    """Why an iteration may not run twice; empty where it begins all that it adds to, or reads of what it writes, or is
    one of a greatest or a least number."""
    if why := why_not_apart(program, loop, loop.var):
        return why
    for b, found in changed_in(program, loop):
        again = _reduces(found) and found[0].how != "add"
        if not again and reads_old(b, [use._replace(loops=use.loops[1:]) for use in found]):
            return f"an iteration of `{loop.var}` adds to, or reads, what it did not begin of {b.name}"
    return ""


def reads_old(b: Buffer, found: Sequence[Use]) -> bool:
    """Whether the uses of a buffer in an iteration, in order, read or add to an element that none before surely
    wrote."""
    return any(use.how != "write" and not _begun(b, use, found[:number]) for number, use in enumerate(found))


def _begun(b: Buffer, use: Use, before: Sequence[Use]) -> bool:
    """Whether all elements of a use are written before: in the same iterations of the loops that both stand in."""
    where, written = b.address(use.access.index), dict[int, set[int]]()
    for other in before:
        if other.how != "write" or not other.sure:
            continue
        shared = sum(mine is its for mine, its in zip(use.loops, other.loops, strict=False))
        its = b.address(other.access.index)
        if _fixed(its, other.loops[shared:]).terms == _fixed(where, use.loops[shared:]).terms:
            written.setdefault(shared, set()).update(elements_of(its, other.loops[shared:]))
    return any(elements_of(where, use.loops[shared:]) <= found for shared, found in written.items())


def _fixed(where: Affine, loops: Sequence[For]) -> Affine:
    return where.at({f.var: 0 for f in loops})


def covers(b: Buffer, found: Sequence[Use], size: int) -> bool:
    """Whether the uses of a buffer in an iteration surely write so many elements."""
    writes = [use for use in found if use.how == "write" and use.sure]
    return len(set().union(*(elements_of(b.address(use.access.index), use.loops) for use in writes))) == size


def elements_of(where: Affine, loops: Sequence[For]) -> set[int]:
    """All values of an address as its loops iterate; variables of other loops count as 0."""
    found = {where.const}
    for f in loops:
        if factor := where[f.var]:
            found = {place + factor * position for position in f.positions for place in found}
    return found


def last_values(program: Program, loops: Iterable[For]) -> dict[str, int]:
    """The greatest values of loops, and of the numbers that a program computes."""
    computed = {s.var: s.last for s in program.statements if isinstance(s, Let)}
    return computed | {loop.var: loop.last for loop in loops}


def bounds_of(index: Affine, around: Sequence[Around]) -> tuple[int, int]:
    """The least and the greatest value of an index where it stands, given the loops and conditions around it."""
    last = {s.var: s.last for s in around if not isinstance(s, If)}
    low, high = index.bounds(last)
    for condition in (c for s in around if isinstance(s, If) for c in s.conditions if c.terms):
        name, factor = condition.terms[0]
        if not index[name] or index[name] % factor:
            continue
        times = index[name] // factor
        least, most = (index - condition * times).bounds(last)
        low, high = (max(low, least), high) if times > 0 else (low, min(high, most))
    return low, high
