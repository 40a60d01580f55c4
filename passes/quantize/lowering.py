"""The table of integer lowerings: what stands between quantised operands and a `quant.qcast`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tosaic.passes.quantize.quantisation import Quantisation
from tosaic.support.mlir import ir

Lowering: TypeAlias = Callable[[ir.Operation, Quantisation], "ir.Value | None"]

LOWERINGS: dict[str, list[Lowering]] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Decorator: the function lowers `qcast(op)` for f32 ops of these names.

    It takes the op and the quantisation of its result, and returns the stored integers, or None where it does not
    apply (an operand is not quantised, a constant is not constant).
    """

    def note(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS.setdefault(name, []).append(function)
        return function

    return note
