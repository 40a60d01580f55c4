"""Primitives on loops: split, reorder, distribute, fuse, drop, unroll."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import around_of
from tosaic.backends.cortex_m.program.legal import why_not_apart, why_not_repeatable
from tosaic.backends.cortex_m.program.primitives.dims import MergeDims
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import at, exchanged, mapped, seq, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import own_buffers, touches
from tosaic.backends.cortex_m.program.tree import BLOCKS, Alloc, For, If, Let, Op, RefusedError, Seq, Statement


def plain(loop: For) -> For:
    """Guard: a loop that no step has marked.

    Raises:
        RefusedError: it is unrolled, or a block.
    """
    if loop.kind != "each":
        raise RefusedError(f"`{loop.var}` is no plain loop")
    return loop


def with_loop(program: Program, loop: For | Let, new: Statement) -> Program:
    """The program with a loop, or a computed number, exchanged."""
    return replace(program, body=exchanged(program.body, loop, new))


def renamed(program: Program, statement: Statement, suffix: str) -> Statement:
    """A copy of a statement whose loops and buffers have names of their own, which end in `suffix`."""
    taken = set(program.names)
    loops, buffers = dict[str, str](), dict[str, str]()

    def new(name: str) -> str:
        found = name + suffix
        while found in taken:
            found += suffix
        taken.add(found)
        return found

    for s in walk(statement):
        if isinstance(s, For | Let) and s.var not in loops:
            loops[s.var] = new(s.var)
    for name in sorted(own_buffers(statement)):
        buffers[name] = new(name)
    found = at(statement, {old: Affine.of(name) for old, name in loops.items()})
    found = with_accesses(found, lambda a: a._replace(buffer=buffers.get(a.buffer, a.buffer)))

    def one(s: Statement) -> Statement:
        match s:
            case For():
                ahead = buffers.get(s.ahead, s.ahead) if isinstance(s.ahead, str) else s.ahead
                return replace(s, var=loops[s.var], ahead=ahead)
            case Let():
                return replace(s, var=loops[s.var])
            case Alloc():
                return replace(s, buffer=replace(s.buffer, name=buffers[s.buffer.name]))
        return s

    return mapped(found, one)


@PRIMITIVES.register
class Split(Primitive):
    """`split(x, xi, 4)`: `for x in N` becomes `for x in N / 4: for xi in 4`.

    Where the factor does not divide N, `early` starts the last iteration so that it is whole; it repeats work.
    A number that is computed becomes its quotient, and the rest.
    """

    name = "split"
    takes = ("variable", "name", "number", "word")
    optional = 1
    words = ("exact", "early")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        var, inner, factor = str(arguments[0]), str(arguments[1]), int(arguments[2])
        tail = arguments[3] if len(arguments) > 3 else "exact"
        fresh(program, inner)
        if (number := computed_number(program, var)) is not None:
            return _divided(program, number, inner, factor, tail)
        loop = plain(program.loop(var))
        if loop.step != 1 or not 0 < factor <= loop.extent:
            raise RefusedError(f"`{var}` of {loop.extent} by {loop.step} is not split by {factor}")
        if loop.extent % factor == 0:
            if tail != "exact":
                raise RefusedError(f"{factor} divides {loop.extent}: no iteration is early")
            body = at(loop.body, {var: Affine.of(var) * factor + inner})
            return with_loop(program, loop, For(var, loop.extent // factor, For(inner, factor, body)))
        if tail != "early":
            raise RefusedError(f"{factor} does not divide {loop.extent}")
        if why := why_not_repeatable(program, loop):
            raise RefusedError(why)
        body = at(loop.body, {var: Affine.of(var) + inner})
        return with_loop(program, loop, For(var, loop.extent, For(inner, factor, body), factor, early=True))


def computed_number(program: Program, var: str) -> Let | None:
    """The number that is computed and called so; None where there is none, or several."""
    found = [s for s in program.statements if isinstance(s, Let) and s.var == var]
    return found[0] if len(found) == 1 else None


def _divided(program: Program, number: Let, inner: str, factor: int, tail: Argument) -> Program:
    """The program with a computed number as its quotient by a factor, and the rest.

    Raises:
        RefusedError: the factor does not divide what the number is less than.
    """
    if not 1 < factor <= number.extent or number.extent % factor or tail != "exact":
        raise RefusedError(f"`{number.var}` below {number.extent} is not split by {factor}")
    body = at(number.body, {number.var: Affine.of(number.var) * factor + inner})
    quotient, rest = Op("quotient", (number.value, factor)), Op("rest", (number.value, factor))
    if factor.bit_count() == 1:
        quotient, rest = Op("asr", (number.value, factor.bit_length() - 1)), Op("bit_and", (number.value, factor - 1))
    found = Let(number.var, quotient, number.extent // factor, Let(inner, rest, factor, body))
    return with_loop(program, number, found)


@PRIMITIVES.register
class Reorder(Primitive):
    """`reorder(x, n)`: two loops, `n` right inside of `x`, change places."""

    name = "reorder"
    takes = ("loop", "loop")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        outer, inner = map(str, arguments)
        first = program.loop(outer)
        second = first.body
        if not isinstance(second, For) or second.var != inner:
            raise RefusedError(f"`{inner}` does not stand right inside of `{outer}`")
        if first.kind in BLOCKS or second.kind in BLOCKS:
            raise RefusedError("a block stays where it is")
        if why := why_not_apart(program, first, outer, inner):
            raise RefusedError(why)
        return with_loop(program, first, replace(second, body=replace(first, body=second.body)))


@PRIMITIVES.register
class Distribute(Primitive):
    """`distribute(x)`: a loop over several statements becomes a loop over each; the ones behind are named `xb`, `xc`
    and so on. A loop over a condition becomes a condition with a loop in each branch, in which stands what differs from
    iteration to iteration.

    `distribute(x, 2)`: over the first two statements, and over the others.
    """

    name = "distribute"
    takes = ("several", "number")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        var = str(arguments[0])
        loop, alike = plain(program.loop(var)), list[Affine]()
        match loop.body:
            case Seq((_, _, *_) as parts):
                if why := why_not_apart(program, loop, var):
                    raise RefusedError(why)
            case If(conditions, then, otherwise):
                alike = [c for c in conditions if _is_alike(c, loop)]
                if not alike:
                    raise RefusedError(f"a condition in `{var}` is on its iterations")
                others = tuple(c for c in conditions if c not in alike)
                parts = (If(others, then, otherwise) if others else then, otherwise)
                if len(arguments) > 1:
                    raise RefusedError(f"`{var}` holds a condition, not statements")
            case _:
                raise RefusedError(f"`{var}` does not hold several statements")
        if len(arguments) > 1:
            first = int(arguments[1])
            if not 0 < first < len(parts) or len(parts) == 2:
                raise RefusedError(f"{len(parts)} statements in `{var}` have no first {first}")
            parts = (seq(*parts[:first]), seq(*parts[first:]))
        free = (name for letter in "bcdefghijklmnopqrstuvwxyz" if (name := var + letter) not in program.loops)
        names = [var, *itertools.islice(free, len(parts) - 1)]
        if len(names) < len(parts):
            raise RefusedError(f"{len(parts)} statements in `{var}` are more than loops behind it have names for")
        fresh(program, *names[1:])
        loops = [replace(loop, var=n, body=at(b, {var: Affine.of(n)})) for n, b in zip(names, parts, strict=True)]
        if not alike:
            return with_loop(program, loop, seq(*loops))
        least = tuple(c.at({var: 0 if c[var] > 0 else loop.last}) for c in alike)
        return with_loop(program, loop, If(least, *loops))


def _is_alike(condition: Affine, loop: For) -> bool:
    """Whether a condition holds in all iterations of a loop, or in none, whatever other variables are: these count in
    units that no iteration crosses."""
    iterations = Affine(((loop.var, condition[loop.var]),), condition.const).bounds({loop.var: loop.last})
    unit = math.gcd(*(factor for name, factor in condition.terms if name != loop.var))
    return iterations[0] // unit == iterations[1] // unit if unit else iterations[0] >= 0 or iterations[1] < 0


@PRIMITIVES.register
class Fuse(Primitive):
    """`fuse(ky, kx)`: two loops, `kx` right inside of `ky`, become one of the name `kx`.

    Dimensions of buffers that the two count become one as well.
    """

    name = "fuse"
    takes = ("plain", "plain")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        outer, inner = map(str, arguments)
        first = plain(program.loop(outer))
        if not isinstance(first.body, For) or first.body.var != inner:
            raise RefusedError(f"`{inner}` does not stand right inside of `{outer}`")
        second = plain(first.body)
        if (first.step, second.step) != (1, 1):
            raise RefusedError(f"`{outer}` or `{inner}` goes in steps")
        for _, access in touches(second.body):
            where = [i for i, part in enumerate(access.index) if part[outer] or part[inner]]
            if len(where) == 2 and where[1] == where[0] + 1:
                return self.apply(MergeDims().apply(program, access.buffer, where[0]), outer, inner)
        if any(
            isinstance(s, If) and {outer, inner} & set().union(*(c.names for c in s.conditions))
            for s in walk(second.body)
        ):
            raise RefusedError("a condition inside tells them apart")
        for _, access in touches(second.body):
            if first.extent > 1 and any(part[outer] != part[inner] * second.extent for part in access.index):
                raise RefusedError(f"{access.buffer} does not lie so that `{outer}` and `{inner}` count as one")
        return with_loop(program, first, For(inner, first.extent * second.extent, at(second.body, {outer: 0})))


@PRIMITIVES.register
class Drop(Primitive):
    """`drop(ky)`: a loop that iterates once is none."""

    name = "drop"
    takes = ("single",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = plain(program.loop(str(arguments[0])))
        if loop.iterations != 1:
            raise RefusedError(f"`{loop.var}` has {loop.iterations} iterations")
        return with_loop(program, loop, at(loop.body, {loop.var: 0}))


@PRIMITIVES.register
class Unroll(Primitive):
    """`unroll(xi)`: code for each iteration."""

    name = "unroll"
    takes = ("plain",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = plain(program.loop(str(arguments[0])))
        if _inside_of_unrolled(program, loop) or loop.iterations > MOST_ITERATIONS:
            raise RefusedError(f"`{loop.var}` has {loop.iterations} iterations, too many to write out")
        return with_loop(program, loop, replace(loop, kind="unroll"))


MOST_ITERATIONS = 64
"""That are written out."""


def _inside_of_unrolled(program: Program, loop: For) -> bool:
    """Whether writing `loop` out would write out more than `MOST_ITERATIONS` iterations in all."""
    inner = [s for s in walk(loop.body) if isinstance(s, For) and s.kind == "unroll"]
    outer = [s for s in around_of(loop, program.body) or () if isinstance(s, For) and s.kind == "unroll"]
    iterations = loop.iterations
    for other in (*inner, *outer):
        iterations *= other.iterations
    return iterations > 16 * MOST_ITERATIONS
