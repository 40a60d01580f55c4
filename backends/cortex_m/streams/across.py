"""Groups of channels as rows: where an image has few pixels but many channels that go into a pool, each group of them
is made, pooled and forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.backends.cortex_m.streams.row_map import RowMap
from tosaic.backends.cortex_m.streams.stage import Argument, Stage
from tosaic.support.functions import body_of, computing_ops, returned, retype, standalone
from tosaic.support.mlir import bare_bytecode, constant, constant_value, element_type, functions, ir, parse, shape_of
from tosaic.support.tosa_ops import POINTWISE, data_operands, is_constant
from tosaic.support.values import byte_size, is_argument

CHANNELS = 16
"""Of a group, which is a row of a stage."""
_POOLS = ("tosa.avg_pool2d", "tosa.max_pool2d")
_AXES = {"tosa.conv2d": 0, "tosa.depthwise_conv2d": 2}
"""The axis of the weights, operand 1, that is that of the result's channels; all else has them last."""
_BY_CHANNEL = {"tosa.conv2d": (1, 2), "tosa.depthwise_conv2d": (1, 2), "tosa.rescale": (1, 2)}


def stage_across(function: ir.Operation) -> Stage | None:
    """The stage that a `func.func` of tosa ops is for groups of channels; None where it does not keep them apart.

    Args:
        function: one result (1, H, W, C), of convolutions that read their image whole, and of depthwise ones, pools and
            pointwise ops.
    """
    module = standalone(function)
    (function,) = functions(module).values()
    results = returned(function)
    if len(results) != 1 or len(shape_of(results[0])) != 4:
        return None
    batch, *_, channels = shape_of(results[0])
    if batch != 1 or channels % CHANNELS or not all(_keeps_apart(op, channels) for op in computing_ops(function)):
        return None
    whole = {op.operands[0] for op in computing_ops(function) if op.name == "tosa.conv2d"}
    groups = channels // CHANNELS
    arguments = tuple(
        Argument(None, 1, byte_size(value))
        if value in whole
        else Argument(RowMap(), groups, byte_size(value) // groups)
        for value in body_of(function).arguments
    )
    return Stage(bare_bytecode(module), arguments, groups, byte_size(results[0]) // groups, True)


def groups(stage: Stage, first: int, count: int) -> bytes:
    """The stage's module for `count` groups of channels, from group `first` on."""
    module = parse(stage.module)
    (function,) = functions(module).values()
    begin, end = CHANNELS * first, CHANNELS * (first + count)
    ops = computing_ops(function)
    with function.context, function.location:
        for op in ops:
            for number in _by_channel(op):
                operand = op.operands[number]
                values = constant_value(operand)
                axis = _AXES.get(op.name, -1) if number == 1 else -1
                if values is not None and values.ndim and values.shape[axis] == CHANNELS * stage.height:
                    taken = np.ascontiguousarray(np.take(values, range(begin, end), axis))
                    with ir.InsertionPoint(op):
                        op.operands[number] = constant(taken, element_type(operand))
        whole = {op.operands[0] for op in ops if op.name == "tosa.conv2d"}
        for value in (*body_of(function).arguments, *(result for op in ops for result in op.results)):
            if value not in whole:
                *image, _ = shape_of(value)
                value.set_type(ir.RankedTensorType.get([*image, end - begin], element_type(value)))
        retype(function)
        for op in [each.operation for each in body_of(function).operations]:
            if is_constant(op) and not list(op.result.uses):
                op.erase()
    return bare_bytecode(module)


def _by_channel(op: ir.Operation) -> Sequence[int]:
    """The operands that may have a number, or filter, for each channel."""
    if op.name in _BY_CHANNEL:
        return _BY_CHANNEL[op.name]
    return range(len(data_operands(op))) if op.name in POINTWISE else ()


def _keeps_apart(op: ir.Operation, channels: int) -> bool:
    """Whether a group of the result's channels is made of that group of what is no constant, or of a whole argument."""
    (made,) = op.results
    image, *rest = op.operands
    if op.name in _AXES or op.name in _POOLS:
        if any(constant_value(operand) is None for operand in rest):
            return False
        return shape_of(made)[-1] == channels and (
            is_argument(image) if op.name == "tosa.conv2d" else shape_of(image)[-1] == channels
        )
    if op.name not in POINTWISE or shape_of(made)[-1] != channels:
        return False
    return all(constant_value(o) is not None or shape_of(o)[-1:] == shape_of(made)[-1:] for o in op.operands)
