"""A matrix whose last two axes were exchanged, for the passes that read it as it lay before."""

from __future__ import annotations

from tosaic.passes.permutation import permutation_of
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import producer


def transposed_rows(value: ir.Value) -> tuple[ir.Operation, ...]:
    """The TRANSPOSE of the last two axes that makes a value, and the RESHAPE behind it that keeps these, if any;
    nothing for another value."""
    view = producer(value, "tosa.reshape")
    op = producer(view.operands[0] if view else value, "tosa.transpose")
    if op is None:
        return ()
    perms, shape = permutation_of(op), shape_of(op.results[0])
    rank = len(perms)
    if perms != (*range(rank - 2), rank - 1, rank - 2) or shape[-2:] != shape_of(value)[-2:]:
        return ()
    return (op, view) if view else (op,)
