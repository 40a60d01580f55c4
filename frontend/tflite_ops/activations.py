"""What a float op of a file does with its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import clamp, emit

ACTIVATIONS: Mapping[int, Callable[[ir.Value], ir.Value]] = {
    0: lambda x: x,
    1: lambda x: clamp(x, 0, float("inf")),
    2: lambda x: clamp(x, -1, 1),
    3: lambda x: clamp(x, 0, 6),
    4: lambda x: emit("tanh", [x], shape_of(x), "f32"),
}
"""By their numbers in ActivationFunctionType of schema.fbs."""


def sigmoid(x: ir.Value) -> ir.Value:
    """Of f32."""
    return emit("sigmoid", [x], shape_of(x), "f32")
