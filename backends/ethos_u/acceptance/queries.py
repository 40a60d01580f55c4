"""What rules ask of an op: its types, attributes and constants, and what stands beside it."""

from __future__ import annotations

import numpy as np

from tosaic.support.attributes import int_of, ints_of
from tosaic.support.mlir import constant_value, element_type, ir, shape_of
from tosaic.support.tosa_ops import POINTWISE, REAL
from tosaic.support.values import producer, users

# What Vela makes an elementwise op of.
_ELEMENTWISE = POINTWISE - REAL - {"tosa.clamp", "tosa.identity", "tosa.rescale", "tosa.select", "tosa.table"}
_ELEMENTWISE |= {"tosa.reduce_min"}


def constant_operand(op: ir.Operation, index: int) -> np.ndarray | None:
    """The constant behind an operand, None where it is computed."""
    return constant_value(op.operands[index])


def int_list(array: np.ndarray | None) -> list[int] | None:
    return None if array is None else [int(v) for v in np.ravel(array)]


def data_type(op: ir.Operation) -> str:
    """The element type that the table speaks of: the first operand's, or the chosen values' of SELECT."""
    return str(element_type(op.operands[1 if op.name == "tosa.select" else 0]))


def is_view(op: ir.Operation) -> bool:
    """Whether Vela drops the op: a change of shape only, or what leaves each element where it is.

    A REVERSE or reduction of an axis of size 1, a pool of 1x1, a SLICE, PAD, TILE or CONCAT of all and nothing else.
    """
    if op.name in ("tosa.slice", "tosa.pad", "tosa.tile", "tosa.concat"):
        return op.operands[0].type == op.results[0].type
    if op.name == "tosa.reverse":
        return shape_of(op.operands[0])[int_of(op, "axis")] == 1
    if op.name.startswith("tosa.reduce_"):
        return op.operands[0].type == op.results[0].type
    if op.name == "tosa.max_pool2d":
        return ints_of(op, "kernel") == (1, 1) and op.operands[0].type == op.results[0].type
    return op.name == "tosa.identity" or is_reshape(op)


def is_reshape(op: ir.Operation) -> bool:
    """Whether the op is a RESHAPE, or a TRANSPOSE that moves axes of size 1 only."""
    if op.name != "tosa.transpose":
        return op.name == "tosa.reshape"
    shape = shape_of(op.operands[0])
    moved = [axis for axis in ints_of(op, "perms") if shape[axis] != 1]
    return moved == sorted(moved)


def is_elementwise(op: ir.Operation) -> bool:
    """Whether Vela makes an elementwise op of it: by itself, or as the input scale of elementwise ops."""
    if op.name == "tosa.rescale":
        return all(user.name != "tosa.rescale" and is_elementwise(user) for user in users(op.results[0]))
    return op.name in _ELEMENTWISE


def producer_name(value: ir.Value, *through: str) -> str:
    """The name of the op that made `value`, looking through views and the ops named; empty for an argument."""
    while (op := producer(value)) is not None and (is_view(op) or op.name in through):
        value = op.operands[0]
    return "" if op is None else op.name


def user_names(value: ir.Value, *through: str) -> set[str]:
    """The names of the ops that use `value`, looking through views and the ops named."""
    found: set[str] = set()
    for user in users(value):
        found |= user_names(user.results[0], *through) if is_view(user) or user.name in through else {user.name}
    return found
