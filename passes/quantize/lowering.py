"""The table of integer lowerings: what stands between quantized operands and a `quant.qcast`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tosaic.support.mlir import ir
from tosaic.support.quantization import Quantization

Lowering: TypeAlias = Callable[[ir.Operation, Quantization], "ir.Value | None"]

LOWERINGS: dict[str, list[Lowering]] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Decorator: the function lowers `qcast(op)` for f32 ops of these names.

    It takes the op and the quantization of its first result, and returns the stored integers. It returns None where it
    does not apply: an operand is not quantized, a constant is not constant.
    """

    def note(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS.setdefault(name, []).append(function)
        return function

    return note
