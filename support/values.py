"""Values of a function: what makes one, who reads it, and what its type says."""

from __future__ import annotations

import math

from tosaic.support.mlir import element_type, ir, numpy_dtype, shape_of


def producer(value: ir.Value, *names: str) -> ir.Operation | None:
    """The op that makes `value`, of one of `names` where any are given; None for an argument and for other ops."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return op if not names or op.name in names else None


def is_argument(value: ir.Value) -> bool:
    """Whether no op makes `value`: it is an argument of its function."""
    return isinstance(value.owner, ir.Block)


def users(value: ir.Value) -> list[ir.Operation]:
    """The op behind each use of `value`; one that reads it twice stands there twice."""
    return [use.owner.operation for use in value.uses]


def readers(value: ir.Value) -> list[ir.Operation]:
    """The op behind each use of `value`, or of what reshapes make of it."""
    found = []
    for user in users(value):
        found += readers(user.results[0]) if user.name == "tosa.reshape" else [user]
    return found


def behind_reshapes(value: ir.Value) -> ir.Value:
    """What is left of a value behind the reshapes that alone read it, one after the other."""
    while [user.name for user in users(value)] == ["tosa.reshape"]:
        value = users(value)[0].results[0]
    return value


def tensor_operands(op: ir.Operation) -> list[ir.Value]:
    """The operands that are tensors, as shapes are not."""
    return [operand for operand in op.operands if isinstance(operand.type, ir.RankedTensorType)]


def bit_width(value: ir.Value) -> int:
    """The bits of an element: 48 of i48, 32 of f32."""
    return element_type(value).width


def multiplications(op: ir.Operation) -> int:
    """The multiply-accumulates of a convolution or matrix product; 0 for every other op."""
    kind = op.name.removeprefix("tosa.")
    if kind == "matmul":
        return math.prod(shape_of(op.results[0])) * shape_of(op.operands[0])[-1]
    if kind not in ("conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d"):
        return 0
    weights = shape_of(op.operands[1])
    if kind == "transpose_conv2d":  # each pixel of the input meets all weights
        return math.prod(shape_of(op.operands[0])[:-1]) * math.prod(weights)
    taps = math.prod(weights[:2]) if kind == "depthwise_conv2d" else math.prod(weights[1:])
    return math.prod(shape_of(op.results[0])) * taps


def byte_size(value: ir.Value) -> int:
    """The bytes of a tensor as numpy holds it."""
    return math.prod(shape_of(value)) * numpy_dtype(element_type(value)).itemsize
