"""Primitives on conditions: decide, assume."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.around import under
from tosaic.backends.cortex_m.program.legal import bounds_of
from tosaic.backends.cortex_m.program.primitives.loops import plain, renamed, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import mapped_down
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import Around, If, RefusedError, Statement


@PRIMITIVES.register
class Decide(Primitive):
    """`decide(x)`: conditions in loop `x` that always hold, or never, are none."""

    name = "decide"
    takes = ("conditional",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = program.loop(str(arguments[0]))
        known = {id(s): self._known(s, around) for s, around in under(program.body) if isinstance(s, If)}

        def one(s: Statement) -> Statement | None:
            if not isinstance(s, If) or known[id(s)] is None:
                return None
            return mapped_down(s.then if known[id(s)] else s.otherwise, one)

        body = mapped_down(loop.body, one)
        if not any(isinstance(s, If) and known[id(s)] is not None for s, _ in under(loop)):
            raise RefusedError(f"no condition in `{loop.var}` is decided")
        return with_loop(program, loop, replace(loop, body=body))

    def _known(self, s: If, around: tuple[Around, ...]) -> bool | None:
        """Whether a condition holds; None where that depends on the iteration."""
        bounds = [bounds_of(condition, around) for condition in s.conditions]
        if all(low >= 0 for low, _ in bounds):
            return True
        return False if any(high < 0 for _, high in bounds) else None


@PRIMITIVES.register
class Assume(Primitive):
    """`assume(ckx, s)`: a loop over a condition becomes one without it where the condition holds in all iterations;
    else it stands as it is, and names in it end in `_s`."""

    name = "assume"
    takes = ("conditional", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, suffix = plain(program.loop(str(arguments[0]))), str(arguments[1])
        fresh(program, f"{loop.var}_{suffix}")
        if not isinstance(loop.body, If) or not any(c[loop.var] for c in loop.body.conditions):
            raise RefusedError(f"`{loop.var}` holds no condition on its iterations")
        ends = (c.at({loop.var: end}) for c in loop.body.conditions for end in (0, loop.last))
        always = If(
            tuple(dict.fromkeys(ends)), replace(loop, body=loop.body.then), renamed(program, loop, f"_{suffix}")
        )
        return with_loop(program, loop, always)
