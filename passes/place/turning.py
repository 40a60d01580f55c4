"""Transposes of matrices before a product that is left to the core, whose kernels read columns as well as rows."""

from __future__ import annotations

from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, transpose
from tosaic.support.values import producer


def turn_in_products_on_cpu(module: ir.Module) -> None:
    """Let what turns the matrices of a MATMUL's second operand stand right before it, where it has no `tosaic.op`."""
    rewrite(module, [_behind_reshape])


@pattern("tosa.matmul")
def _behind_reshape(op: ir.Operation) -> Replacement:
    """`matmul(a, reshape(transpose(x)))` -> `matmul(a, transpose(reshape(x)))`, of matrices either way."""
    a, b, *zeros = op.operands
    view = None if "tosaic.op" in op.attributes else producer(b, "tosa.reshape")
    turned = None if view is None else producer(view.operands[0], "tosa.transpose")
    if turned is None or "tosaic.op" in turned.attributes:
        return None
    perms, (n, depth, columns) = ints_of(turned, "perms"), shape_of(b)
    rank = len(perms)
    if perms != (*range(rank - 2), rank - 1, rank - 2) or shape_of(turned.results[0])[-2:] != (depth, columns):
        return None
    why = {name: turned.attributes[name] for name in ("tosaic.reason",) if name in turned.attributes}
    rows = transpose(reshape(turned.operands[0], (n, columns, depth)), (0, 2, 1), **why)
    return rebuild(op, [a, rows, *zeros], op.results[0].type)
