"""shorten(stage, loop)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class Shorten(NestPrimitive):
    """`shorten(stage, loop)`: the last turn of a split loop ends with the extent: a shorter one, with code of its own.

    Without it that turn starts early, and computes some positions twice.
    """

    name = "shorten"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, name = (str(argument) for argument in arguments)
        loop = nest.loop(stage, name)
        if loop.extent % loop.step == 0:
            raise BackendError(f"every turn of `{name}` is whole", why=f"the nest is\n{nest}")
        loops = [other._replace(short=True) if other is loop else other for other in nest.stages[stage]]
        return nest.with_loops(stage, loops)
