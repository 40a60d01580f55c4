"""hoist(stage, loads)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class NestHoist(NestPrimitive):
    """`hoist(stage, loads)`: software pipelining: so many loads of a turn are executed at the end of the one before."""

    name = "hoist"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, loads = str(arguments[0]), int(arguments[1])
        if not any(loop.how == "turn" for loop in nest.stages[stage]):
            raise BackendError(f"`{stage}` has no hardware loop to hoist loads in", why=f"the nest is\n{nest}")
        return nest._replace(hoisted={**nest.hoisted, stage: loads})
