"""What rules ask of an op: its types, attributes and constants, and what stands beside it."""

from __future__ import annotations

import numpy as np

from tosaic.support.mlir import constant_value, element_type, ir, shape_of
from tosaic.support.tosa_ops import POINTWISE, REAL, is_constant

# What Vela makes an elementwise op of.
_ELEMENTWISE = POINTWISE - REAL - {"tosa.clamp", "tosa.identity", "tosa.rescale", "tosa.select", "tosa.table"}
_ELEMENTWISE |= {"tosa.reduce_min"}


def constant_operand(op: ir.Operation, index: int) -> np.ndarray | None:
    """The constant behind an operand; for i4 and i48, which numpy cannot read, an array of no meaning but not None."""
    value = op.operands[index]
    if isinstance(value.owner, ir.Block) or not is_constant(value.owner):
        return None
    if isinstance(value.type, ir.RankedTensorType) and str(element_type(value)) in ("i4", "i48"):
        return np.zeros(shape_of(value), np.int64)
    return constant_value(value)


def int_array(op: ir.Operation, name: str) -> list[int]:
    return [int(v) for v in ir.DenseI64ArrayAttr(op.attributes[name])]


def int_attribute(op: ir.Operation, name: str) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value)


def int_list(array: np.ndarray | None) -> list[int] | None:
    return None if array is None else [int(v) for v in np.ravel(array)]


def data_operands(op: ir.Operation) -> list[ir.Value]:
    return [value for value in op.operands if isinstance(value.type, ir.RankedTensorType)]


def data_type(op: ir.Operation) -> str:
    """The element type that the table speaks of: the first operand's, or the chosen values' of SELECT."""
    return str(element_type(op.operands[1 if op.name == "tosa.select" else 0]))


def is_view(op: ir.Operation | ir.OpView) -> bool:
    """Whether Vela drops the op: a change of shape only, or what leaves each element where it is.

    A REVERSE or reduction of an axis of size 1, a pool of 1x1, a SLICE, PAD, TILE or CONCAT of all and nothing else.
    """
    if op.name in ("tosa.slice", "tosa.pad", "tosa.tile", "tosa.concat"):
        return op.operands[0].type == op.results[0].type
    if op.name == "tosa.reverse":
        return shape_of(op.operands[0])[int_attribute(op, "axis")] == 1
    if op.name.startswith("tosa.reduce_"):
        return op.operands[0].type == op.results[0].type
    if op.name == "tosa.max_pool2d":
        return int_array(op, "kernel") == [1, 1] and op.operands[0].type == op.results[0].type
    return op.name == "tosa.identity" or is_reshape(op)


def is_reshape(op: ir.Operation | ir.OpView) -> bool:
    """Whether the op is a RESHAPE, or a TRANSPOSE that moves axes of size 1 only."""
    if op.name != "tosa.transpose":
        return op.name == "tosa.reshape"
    shape = shape_of(op.operands[0])
    moved = [axis for axis in map(int, ir.DenseI32ArrayAttr(op.attributes["perms"])) if shape[axis] != 1]
    return moved == sorted(moved)


def is_elementwise(op: ir.Operation | ir.OpView) -> bool:
    """Whether Vela makes an elementwise op of it: by itself, or as the input scale of elementwise ops."""
    if op.name == "tosa.rescale":
        return all(use.owner.name != "tosa.rescale" and is_elementwise(use.owner) for use in op.results[0].uses)
    return op.name in _ELEMENTWISE


def producer(value: ir.Value, *through: str) -> str:
    """The name of the op that made `value`, looking through views and the ops named; empty for an argument."""
    while not isinstance(value.owner, ir.Block) and (is_view(value.owner) or value.owner.name in through):
        value = value.owner.operands[0]
    return "" if isinstance(value.owner, ir.Block) else value.owner.name


def consumers(value: ir.Value, *through: str) -> set[str]:
    """The names of the ops that use `value`, looking through views and the ops named."""
    found: set[str] = set()
    for use in value.uses:
        if is_view(use.owner) or use.owner.name in through:
            found |= consumers(use.owner.results[0], *through)
        else:
            found.add(use.owner.name)
    return found
