"""split(stage, loop, inner, factor)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestLoop, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class NestSplit(NestPrimitive):
    """`split(stage, loop, inner, factor)`: `for i in N` becomes `for i in N by factor: for inner in factor`.

    Where the factor does not divide the extent, the last turn starts early enough to be whole.
    """

    name = "split"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, name, inner, factor = str(arguments[0]), str(arguments[1]), str(arguments[2]), int(arguments[3])
        loop = nest.loop(stage, name)
        width = factor * loop.step
        if not 0 < width <= loop.extent:
            raise BackendError(f"`{name}` of {loop.extent} cannot be split by {factor}")
        if loop.how != "each" or any(other.name == inner for other in nest.stages[stage]):
            raise BackendError(f"`{name}` cannot be split into `{inner}`", why=f"the nest is\n{nest}")
        parts = (loop._replace(step=width), NestLoop(inner, loop.axis, width, loop.step))
        loops = [part for other in nest.stages[stage] for part in (parts if other is loop else (other,))]
        return nest.with_loops(stage, loops)
