"""fuse(stage, outer, inner)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class NestFuse(NestPrimitive):
    """`fuse(stage, outer, inner)`: two whole loops, one right inside the other, become one over both, named `inner`."""

    name = "fuse"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        stage, first, second = (str(argument) for argument in arguments)
        outer, inner = nest.loop(stage, first), nest.loop(stage, second)
        loops = list(nest.stages[stage])
        at = loops.index(outer)
        if loops[at + 1 : at + 2] != [inner] or {outer.step, inner.step} != {1} or {outer.how, inner.how} != {"each"}:
            raise BackendError(f"`{first}` and `{second}` of `{stage}` cannot be fused", why=f"the nest is\n{nest}")
        loops[at : at + 2] = [inner._replace(extent=outer.extent * inner.extent)]
        return nest.with_loops(stage, loops)
