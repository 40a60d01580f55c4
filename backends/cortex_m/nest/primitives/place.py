"""place(operand, where)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive
from tosaic.support.errors import BackendError


@PRIMITIVES.register
class NestPlace(NestPrimitive):
    """`place(operand, where)`: where an operand is read from, e.g. `in_place` or `windows` side by side in scratch."""

    name = "place"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        operand, where = (str(argument) for argument in arguments)
        if operand in nest.places:
            raise BackendError(f"`{operand}` has its place already: {nest.places[operand]}")
        return nest._replace(places={**nest.places, operand: where})
