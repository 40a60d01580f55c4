"""Primitives on what iterations of a loop have in common: tell, once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import around_of, stands_in
from tosaic.backends.cortex_m.program.legal import elements_of, uses
from tosaic.backends.cortex_m.program.primitives.dims import not_held
from tosaic.backends.cortex_m.program.primitives.loops import plain, renamed, with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import at, exchanged, mapped_down, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import own_buffers, touches, written_by
from tosaic.backends.cortex_m.program.tree import Alloc, For, If, RefusedError, Statement


@PRIMITIVES.register
class Tell(Primitive):
    """`tell(cv, y)`: a loop over conditions on iterations of `y`, which stands around, becomes one without for each
    kind of iterations of `y`: those that follow each other and in which the same conditions hold. Loops inside that
    conditions count are written out; names in the second kind end in `_1`, in the third in `_2` ..."""

    name = "tell"
    takes = ("conditional", "loop")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, outer = plain(program.loop(str(arguments[0]))), program.loop(str(arguments[1]))
        around = around_of(loop, outer.body)
        if around is None or loop is outer:
            raise RefusedError(f"`{loop.var}` does not stand in `{outer.var}`")
        body = self._written_out(loop.body, outer.var)
        conditions = list(dict.fromkeys(s.conditions for s in walk(body) if isinstance(s, If)))
        if not conditions or any(c.names - {outer.var} for each in conditions for c in each):
            raise RefusedError(f"conditions in `{loop.var}` are not on iterations of `{outer.var}` alone")
        kinds = itertools.groupby(outer.positions, lambda at: tuple(_hold(each, outer.var, at) for each in conditions))
        runs = [(pattern, list(positions)) for pattern, positions in kinds]
        # The kind of the most iterations is asked for first.
        runs.sort(key=lambda run: -len(run[1]))
        place, found = Affine.of(outer.var), seq()
        for number, (pattern, positions) in reversed(list(enumerate(runs))):
            known = dict(zip(conditions, pattern, strict=True))
            decided: Statement = replace(loop, body=mapped_down(body, partial(_decided, known)))
            decided = renamed(program, decided, f"_{number}") if number else decided
            ends = (place - positions[0], place * -1 + positions[-1])
            found = If(ends, decided, found) if len(runs) > 1 else decided
        return with_loop(program, loop, found)

    def _written_out(self, body: Statement, outer: str) -> Statement:
        """A statement with the loops written out that conditions inside of them count."""

        def one(s: Statement) -> Statement | None:
            if not isinstance(s, For):
                return None
            counted = any(c[s.var] for part in walk(s.body) if isinstance(part, If) for c in part.conditions)
            iterations = [at(s.body, {s.var: position}) for position in s.positions]
            return seq(*(self._written_out(iteration, outer) for iteration in iterations)) if counted else None

        return mapped_down(body, one)


def _hold(conditions: tuple[Affine, ...], var: str, position: int) -> bool:
    """Whether all of some conditions hold in an iteration."""
    return all(c.at({var: position}).const >= 0 for c in conditions)


def _decided(known: Mapping[tuple[Affine, ...], bool], s: Statement) -> Statement | None:
    """What is left of a condition of which is known whether it holds."""
    if not isinstance(s, If):
        return None
    return s.then if known[s.conditions] else s.otherwise


@PRIMITIVES.register
class Once(Primitive):
    """`once(cl, y)`: what loop `cl` writes alike in all iterations of `y`, a loop around it, is written once before
    `y`. It is written to a buffer that lives in `y` and that no other statement writes there. The buffer lives around
    `y` then.
    """

    name = "once"
    takes = ("plain", "plain")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, outer = plain(program.loop(str(arguments[0]))), plain(program.loop(str(arguments[1])))
        written = written_by(loop) - own_buffers(loop)
        if not stands_in(loop, outer.body) or loop is outer or len(written) != 1:
            raise RefusedError(f"`{loop.var}` in `{outer.var}` does not write one buffer")
        (name,) = written
        b = program.buffer(name)
        scope = next((s for s in walk(outer.body) if isinstance(s, Alloc) and s.buffer.name == name), None)
        outside = around_of(loop, outer.body) or ()
        if scope is not None and outside:
            raise RefusedError(f"`{loop.var}` does not stand right in `{outer.var}`")
        if b.memory != "scratch" or (scope is not None and scope is not outer.body):
            raise RefusedError(f"{name} does not live right in `{outer.var}`")
        not_held(outer.body, name)
        differs = [a for _, a in touches(outer.body) if a.buffer == name or a in {each for _, each in touches(loop)}]
        if any(outer.var in index.names for access in differs for index in access.index):
            raise RefusedError(f"iterations of `{outer.var}` differ in what `{loop.var}` does")
        read = {access.buffer for how, access in touches(loop) if how == "read"}
        if read & written_by(outer.body):
            raise RefusedError(f"what `{loop.var}` reads changes in `{outer.var}`")
        mine, others = set[int](), set[int]()
        for use in uses(outer.body, name):
            if use.how != "read":
                own = any(f is loop for f in use.loops)
                (mine if own else others).update(elements_of(b.address(use.access.index), use.loops))
        if mine & others:
            raise RefusedError(f"others write what `{loop.var}` writes of {name}")
        body = outer.body if scope is None else scope.body
        rest = replace(outer, body=exchanged(body, loop, seq()))
        moved = seq(loop, rest)
        return replace(program, body=exchanged(program.body, outer, moved if scope is None else Alloc(b, moved)))
