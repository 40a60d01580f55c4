"""Transposes that cancel, or that are reshapes, for the passes that make them."""

from __future__ import annotations

import numpy as np

from tosaic.passes.permutation import compose, moves_only_units, permutation_of, transpose_behind
from tosaic.passes.reshapes import merge_reshapes
from tosaic.passes.rewrite import Replacement, pattern
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import reshape, transpose


@pattern("tosa.transpose")
def cancel(op: ir.Operation) -> Replacement:
    """Identity permutations vanish, two in a row become one, constants are permuted here."""
    x, perm = op.operands[0], permutation_of(op)
    if perm == tuple(range(len(perm))):
        return x
    before = transpose_behind(x)
    if before is not None:
        return transpose(before[0], compose(before[1], perm))
    values = constant_value(x) if str(element_type(x)) not in ("i4", "i48") else None
    return None if values is None else constant(np.transpose(values, perm))


@pattern("tosa.transpose")
def to_reshape(op: ir.Operation) -> Replacement:
    """A transpose that keeps the order of all dimensions larger than 1 is a reshape."""
    x = op.operands[0]
    return reshape(x, shape_of(op.results[0])) if moves_only_units(shape_of(x), permutation_of(op)) else None


FEWEST = [cancel, to_reshape, merge_reshapes]
"""What leaves as few transposes as there can be where they stand, and none that is a reshape."""
