"""Ops that move elements."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.frontend.tflite_ops.registry import Call, tflite_op
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import emit


@tflite_op("REVERSE_V2", when=lambda call: call.input(0).scales != call.outputs[0].scales)
def reverse(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """LiteRT moves integers as they are, whatever their scales; the converter takes the result to have the scale of the
    operand."""
    (x,), axes = operands, call.input(1).array.reshape(-1).tolist()
    for axis in axes:
        x = emit("reverse", [x], shape_of(x), element_type(x), axis=axis % len(shape_of(x)))
    return [x]


@tflite_op("ARG_MIN", when=lambda call: call.kinds() == ("i8", "i32"))
def arg_min(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """The first of the least: the first of the greatest among complements."""
    (x,), axis = operands, int(call.input(1).array.item()) % len(shape_of(operands[0]))
    complements = emit("bitwise_not", [x], shape_of(x), "i8")
    shape = [size for index, size in enumerate(shape_of(x)) if index != axis]
    return [emit("argmax", [complements], shape, "i32", axis=axis)]
