"""hold(operand, vectors)"""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Argument, Nest, NestPrimitive


@PRIMITIVES.register
class Hold(NestPrimitive):
    """`hold(operand, vectors)`: so many vectors of an operand stay in registers; others are loaded where used."""

    name = "hold"

    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        return nest._replace(held={**nest.held, str(arguments[0]): int(arguments[1])})
