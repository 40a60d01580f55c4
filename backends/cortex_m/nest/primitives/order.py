"""order(stage, loop, loop, ...)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class Order(NestPrimitive):
    """`order(stage, loop, ...)`: the loops of a stage, outermost first; all of them are named.

    The parts of one axis stay in their order: the outer before the inner.
    """

    name = "order"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, names = str(arguments[0]), [str(name) for name in arguments[1:]]
        loops = [nest.loop(stage, name) for name in names]
        if sorted(names) != sorted(loop.name for loop in nest.stages[stage]):
            raise BackendError(f"`order` names {', '.join(names)} of `{stage}`", why=f"the nest is\n{nest}")
        for axis in {loop.axis for loop in loops}:
            steps = [loop.step for loop in loops if loop.axis == axis]
            if steps != sorted(steps, reverse=True):
                raise BackendError(f"an inner loop over `{axis}` of `{stage}` would stand outside of an outer one")
        return nest.with_loops(stage, loops)
