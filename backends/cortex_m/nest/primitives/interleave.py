"""interleave(stage, vectors)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class Interleave(NestPrimitive):
    """`interleave(stage, vectors)`: the code of so many unrolled vectors alternates, so that one runs while another
    waits."""

    name = "interleave"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, vectors = str(arguments[0]), int(arguments[1])
        unrolled = [loop.turns for loop in nest.stages[stage] if loop.how == "unroll"]
        if not any(turns % vectors == 0 for turns in unrolled):
            raise BackendError(f"`{stage}` has no unrolled loop of pairs or groups of {vectors}")
        return nest._replace(interleaved={**nest.interleaved, stage: vectors})
