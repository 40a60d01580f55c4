"""Reshapes in a row, for the passes that make them."""

from __future__ import annotations

from tosaic.passes.rewrite import Replacement, pattern
from tosaic.support.mlir import ir, shape_of
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
