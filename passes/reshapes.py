"""Reshapes in a row and of constants, for the passes that make them."""

from __future__ import annotations

import numpy as np

from tosaic.passes.rewrite import Replacement, pattern
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import reshape
from tosaic.support.values import producer


@pattern("tosa.reshape")
def merge_reshapes(op: ir.Operation) -> Replacement:
    """Two reshapes in a row are one; a reshape to the same shape is none."""
    x, shape = op.operands[0], shape_of(op.results[0])
    if shape_of(x) == shape:
        return x
    first = producer(x, "tosa.reshape")
    return None if first is None else reshape(first.operands[0], shape)


@pattern("tosa.reshape")
def reshape_of_constant(op: ir.Operation) -> Replacement:
    """A reshaped constant is a constant."""
    if str(element_type(op.results[0])) in ("i4", "i48"):
        return None
    values = constant_value(op.operands[0])
    return None if values is None else constant(np.reshape(values, shape_of(op.results[0])))
