"""Primitives on sums over windows: gather."""

from __future__ import annotations

import math

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.primitives.loops import plain, renamed, with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import accesses, at, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import For, Reduce, RefusedError, Statement

_MOST = 64


@PRIMITIVES.register
class Gather(Primitive):
    """`gather(xi, kx, P, t)`: the iterations of two loops that add up, `kx` right inside of `xi`, in the order of what
    they read of P, written out: a loop `t` of one iteration for each element, in it a loop `kx` over the iterations
    that read it."""

    name = "gather"
    takes = ("sums", "plain", "buffer", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        outer, inner, name, new = map(str, arguments)
        first = plain(program.loop(outer))
        if not isinstance(first.body, For) or first.body.var != inner:
            raise RefusedError(f"`{inner}` does not stand right inside of `{outer}`")
        second = plain(first.body)
        fresh(program, new)
        if (first.step, second.step) != (1, 1):
            raise RefusedError(f"`{outer}` or `{inner}` goes in steps")
        outwards, inwards = _strides(program, second, name, outer)
        places = [o * outwards + i * inwards for o in range(first.extent) for i in range(second.extent)]
        if not 1 < len(set(places)) <= _MOST:
            raise RefusedError(f"`{outer}` and `{inner}` read {len(set(places))} elements of {name}")
        common = math.gcd(outwards, inwards)
        parts = list[Statement]()
        for number, place in enumerate(sorted(set(places))):
            least = places.index(place)
            iterations, count = places.count(place), Affine.of(inner) if places.count(place) > 1 else Affine()
            where = {
                outer: count * (inwards // common) + least // second.extent,
                inner: count * -(outwards // common) + least % second.extent,
            }
            body = at(second.body, where)
            iteration = For(new, 1, For(inner, iterations, body) if iterations > 1 else body)
            parts.append(renamed(program, iteration, f"_{number}") if number else iteration)
        return with_loop(program, first, seq(*parts))


def _strides(program: Program, loop: For, name: str, outer: str) -> tuple[int, int]:
    """How far what is read of a buffer moves with an iteration of the outer loop, and of `loop` inside of it.

    Raises:
        RefusedError: `loop` does not only add up, or reads the buffer otherwise.
    """
    inside = [s for s in walk(loop.body) if not isinstance(s, For)]
    sums = [s for s in inside if isinstance(s, Reduce)]
    added = {s.target.buffer for s in sums}
    read = [access for s in sums for access in accesses(s.value)]
    if len(sums) < len(inside) or added & {access.buffer for access in read}:
        raise RefusedError(f"`{loop.var}` does more than add up")
    b = program.buffer(name)
    strides = {(where[outer], where[loop.var]) for a in read if a.buffer == name for where in [b.address(a.index)]}
    if len(strides) != 1 or min(found := next(iter(strides))) < 1:
        raise RefusedError(f"`{outer}` and `{loop.var}` do not both move on in {name}")
    return found
