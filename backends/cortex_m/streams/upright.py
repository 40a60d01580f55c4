"""Sequences as images of one column, so that time runs down, row by row: the same bytes under another shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.support.attributes import int_of, ints_of
from tosaic.support.functions import body_of, computing_ops, retype
from tosaic.support.mlir import constant, constant_shape, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_ops import POINTWISE, data_operands
from tosaic.support.values import is_argument, users

_WEIGHTS = {"tosa.conv2d": (0, 2, 1, 3), "tosa.depthwise_conv2d": (1, 0, 2, 3)}
"""Ops with weights, operand 1, and the order of their axes when rows and columns change places."""
_POOLS = ("tosa.avg_pool2d", "tosa.max_pool2d")
_TURNED = {"pad": (2, 3, 0, 1), "stride": (1, 0), "dilation": (1, 0), "kernel": (1, 0)}
"""Attributes that speak of rows and columns, and their order when these change places."""
_SWAP, _CHANNELS_LAST = (0, 2, 1), (0, 2, 3, 1)


def make_upright(function: ir.Operation) -> None:
    """Give a function on sequences, (1, T, C) or (1, 1, T, C), images (1, T, 1, C) instead, in place; one that holds
    anything else stays as it is.

    Args:
        function: a `func.func` of tosa ops. What a transpose puts last, (1, C, T), becomes (1, C, T, 1).
    """
    ops = computing_ops(function)
    values = [*body_of(function).arguments, *(value for op in ops for value in op.results)]
    if not all(_is_sequence(shape_of(value)) for value in values) or not all(map(_can_turn, ops)):
        return
    with function.context, function.location:
        for value in values:
            extents = (*shape_of(value), 1) if _is_planar(value) else _upright(shape_of(value))
            value.set_type(ir.RankedTensorType.get(extents, element_type(value)))
        for op in ops:
            with ir.InsertionPoint(op):
                _turn(op)
        retype(function)


def _is_sequence(shape: Sequence[int]) -> bool:
    return (len(shape) == 3 and shape[0] == 1) or (len(shape) == 4 and shape[0] == shape[1] == 1)


def _is_planar(value: ir.Value) -> bool:
    return is_argument(value) and any(user.name == "tosa.transpose" for user in users(value))


def _upright(extents: Sequence[int], filler: int = 1) -> tuple[int, ...]:
    """Extents (1, T, C) or (1, 1, T, C) as (1, T, 1, C); with a filler of 0 the same for starts."""
    *_, rows, channels = extents
    return filler, rows, filler, channels


def _can_turn(op: ir.Operation) -> bool:
    if op.name in POINTWISE:
        constants = [values for operand in data_operands(op) if (values := constant_value(operand)) is not None]
        return all(values.ndim < 3 or _is_sequence(values.shape) for values in constants)
    if op.name in _WEIGHTS:
        return constant_value(op.operands[1]) is not None
    if op.name == "tosa.concat":
        return int_of(op, "axis") == len(shape_of(op.results[0])) - 1
    if op.name == "tosa.transpose":
        return ints_of(op, "perms") == _SWAP and is_argument(op.operands[0])
    return op.name in _POOLS or op.name == "tosa.slice"


def _turn(op: ir.Operation) -> None:
    """Let an op, whose operands and results are upright already, compute on them."""
    for name, order in _TURNED.items():
        if name in op.attributes:
            given = ints_of(op, name)
            op.attributes[name] = ir.DenseI64ArrayAttr.get([given[index] for index in order])
    if op.name in POINTWISE:
        for number, operand in enumerate(data_operands(op)):
            values = constant_value(operand)
            if values is not None and values.ndim >= 3:
                op.operands[number] = constant(values.reshape(_upright(values.shape)), element_type(operand))
    elif op.name in _WEIGHTS:
        values = constant_value(op.operands[1])
        assert values is not None
        turned = np.ascontiguousarray(values.transpose(_WEIGHTS[op.name]))
        op.operands[1] = constant(turned, element_type(op.operands[1]))
    elif op.name == "tosa.slice":
        for number, filler in ((1, 0), (2, 1)):
            numbers = constant_value(op.operands[number])
            assert numbers is not None
            op.operands[number] = constant_shape(_upright([int(n) for n in numbers], filler))
    elif op.name == "tosa.concat":
        op.attributes["axis"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 3)
    elif op.name == "tosa.transpose":
        op.attributes["perms"] = ir.DenseI32ArrayAttr.get(list(_CHANNELS_LAST))
