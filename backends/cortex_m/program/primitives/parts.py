"""Primitives that make one loop several: cut, write_out."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.legal import why_not_apart
from tosaic.backends.cortex_m.program.primitives.loops import MOST_ITERATIONS, plain, renamed, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import at, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import For, RefusedError, Statement


@PRIMITIVES.register
class Cut(Primitive):
    """`cut(n, 2)`: a loop becomes two, one after the other: its first iterations, and the rest, where names end in
    `_t`.

    `cut(n, 2, u)`: they end in `_u`. What starts early does so in the rest; what does not is counted by iterations.
    """

    name = "cut"
    takes = ("plain", "number", "name")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        var, first, suffix = str(arguments[0]), int(arguments[1]), str(arguments[2]) if len(arguments) > 2 else "t"
        loop = plain(program.loop(var))
        if len(arguments) > 2:
            fresh(program, f"{var}_{suffix}")
        if not 0 < first < loop.iterations:
            raise RefusedError(f"`{var}` of {loop.extent} by {loop.step} is not cut at {first}")
        before = For(var, first, at(loop.body, {var: Affine.of(var) * loop.step}))
        if first == loop.iterations - 1:
            rest = For(var, 1, at(loop.body, {var: Affine.of(var) + loop.last}))
        else:
            start = first * loop.step
            rest = replace(loop, extent=loop.extent - start, body=at(loop.body, {var: Affine.of(var) + start}))
        return with_loop(program, loop, seq(before, renamed(program, rest, f"_{suffix}")))


@PRIMITIVES.register
class WriteOut(Primitive):
    """`write_out(kh)`: a loop becomes its iterations, one after the other; other loops inside are named apart.

    `write_out(kh, backward)`: the last one comes first.
    """

    name = "write_out"
    takes = ("plain", "word")
    optional = 1
    words = ("forward", "backward")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = plain(program.loop(str(arguments[0])))
        if loop.iterations > MOST_ITERATIONS or loop.iterations == 1:
            raise RefusedError(f"`{loop.var}` has {loop.iterations} iterations")
        positions, parts = list(loop.positions), list[Statement]()
        if arguments[1:] == ("backward",):
            if why := why_not_apart(program, loop, loop.var):
                raise RefusedError(why)
            positions.reverse()
        for number, position in enumerate(positions):
            iteration = at(loop.body, {loop.var: position})
            parts.append(renamed(program, iteration, f"_{number}") if number else iteration)
        return with_loop(program, loop, seq(*parts))
