"""unroll, lanes and turn: what a loop becomes."""

from __future__ import annotations

from typing import ClassVar

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, How, Nest, NestPrimitive
from tosaic.support.errors import BackendError


class _Mark(NestPrimitive):
    how: ClassVar[How]

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage = str(arguments[0])
        names = {str(name) for name in arguments[1:]}
        for name in names:
            if nest.loop(stage, name).how != "each":
                raise BackendError(f"`{name}` of `{stage}` is no plain loop", why=f"the nest is\n{nest}")
        loops = [loop._replace(how=self.how) if loop.name in names else loop for loop in nest.stages[stage]]
        inner = [loop.how for loop in loops]
        if inner != sorted(inner, key=("each", "turn", "unroll", "lanes").index):
            raise BackendError(f"`{self.name}` leaves a plain loop inside of a block", why=f"the loops are {inner}")
        if inner.count("lanes") > 1 or inner.count("turn") > 1:
            raise BackendError(f"`{stage}` would have two loops of {self.how}")
        return nest.with_loops(stage, loops)


@PRIMITIVES.register
class NestUnroll(_Mark):
    """`unroll(stage, loop, ...)`: code for every position."""

    name, how = "unroll", "unroll"


@PRIMITIVES.register
class Lanes(_Mark):
    """`lanes(stage, loop)`: the positions become lanes of vectors."""

    name, how = "lanes", "lanes"


@PRIMITIVES.register
class NestTurn(_Mark):
    """`turn(stage, loop)`: a hardware loop around the block of all loops inside."""

    name, how = "turn", "turn"
