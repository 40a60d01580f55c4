"""Transposes of matrices before a product that is left to the core, whose kernels read columns as well as rows."""

from __future__ import annotations

from tosaic.passes.permutation import permutation_of
from tosaic.passes.reshapes import merge_reshapes
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.passes.transposed_rows import transposed_rows
from tosaic.passes.transposes import FEWEST, to_reshape
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, transpose
from tosaic.support.values import behind_reshapes, producer, users


def turn_in_products_on_cpu(module: ir.Module) -> None:
    """Let what turns the matrices of a MATMUL's second operand stand right before it, where it has no `tosaic.op`."""
    rewrite(module, [_behind_reshape, *FEWEST])
    rewrite(module, [_rows_first, to_reshape, merge_reshapes])  # `FEWEST` would make one transpose of two again


@pattern("tosa.matmul")
def _behind_reshape(op: ir.Operation) -> Replacement:
    """`matmul(a, reshape(transpose(x)))` -> `matmul(a, transpose(reshape(x)))`, of matrices either way."""
    a, b, *zeros = op.operands
    found = () if "tosaic.op" in op.attributes else transposed_rows(b)
    if len(found) < 2 or "tosaic.op" in found[0].attributes:
        return None
    turn, _ = found
    why = {name: turn.attributes[name] for name in ("tosaic.reason",) if name in turn.attributes}
    n, depth, columns = shape_of(b)
    rows = transpose(reshape(turn.operands[0], (n, columns, depth)), (0, 2, 1), **why)
    return rebuild(op, [a, rows, *zeros], op.results[0].type)


@pattern("tosa.matmul")
def _rows_first(op: ir.Operation) -> Replacement:
    """`matmul(a, reshape(transpose(x)))` -> `matmul(a, transpose(reshape(transpose(x))))`, where rows lie together.

    So they do in the heads of keys: whole rows are copied, if anything, and the product turns these.
    """
    a, b, *zeros = op.operands
    view = producer(b, "tosa.reshape")
    moved = producer(view.operands[0] if view else b, "tosa.transpose")
    if moved is None or any("tosaic.op" in each.attributes for each in (op, moved)):
        return None
    (x,), (*outer, depth, columns) = moved.operands, permutation_of(moved)
    n, *matrix = shape_of(b)
    if depth != len(outer) + 1 or transposed_rows(b) or shape_of(moved.results[0])[-2:] != tuple(matrix):
        return None
    if len(users(moved.results[0])) > 1 or len(users(b)) > 1:
        return None
    why = {name: moved.attributes[name] for name in ("tosaic.reason",) if name in moved.attributes}
    rows = transpose(x, (*outer, columns, depth), **why)
    return rebuild(
        op, [a, transpose(reshape(rows, (n, *reversed(matrix))), (0, 2, 1), **why), *zeros], op.results[0].type
    )


def product_that_turns(op: ir.Operation) -> ir.Operation | None:
    """The MATMUL whose second operand an op turns, for it alone: a kernel of the core does so while it reads."""
    value = behind_reshapes(op.results[0])
    if op.name != "tosa.transpose" or [reader.name for reader in users(value)] != ["tosa.matmul"]:
        return None
    (product,) = users(value)
    return product if op in transposed_rows(product.operands[1]) else None
