"""compute_at(stage, consumer, loop)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class NestComputeAt(NestPrimitive):
    """`compute_at(stage, consumer, loop)`: a stage is computed inside that loop, for what the loops below it read.

    It comes before the stage's own loops are split: their extents shrink to one turn of the consumer's.
    """

    name = "compute_at"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, consumer, name = (str(argument) for argument in arguments)
        if stage in nest.at or any(loop.step > 1 for loop in nest.stages[stage]):
            raise BackendError(f"`{stage}` is placed or split already", why=f"the nest is\n{nest}")
        loops = nest.stages[consumer]
        outside = loops[: loops.index(nest.loop(consumer, name)) + 1]
        width = {loop.axis: loop.step for loop in outside}
        shrunk = [loop._replace(extent=width.get(loop.axis, loop.extent)) for loop in nest.stages[stage]]
        return nest.with_loops(stage, shrunk)._replace(at={**nest.at, stage: (consumer, name)})
