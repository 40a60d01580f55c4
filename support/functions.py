"""What is in a function of one block."""

from __future__ import annotations

from tosaic.support.attributes import text_of
from tosaic.support.mlir import ir
from tosaic.support.tosa_ops import is_constant


def body_of(function: ir.Operation) -> ir.Block:
    """The function's block."""
    return function.regions[0].blocks[0]


def computing_ops(function: ir.Operation) -> list[ir.Operation]:
    """The ops in program order, without constants and the return."""
    *ops, _ = [op.operation for op in body_of(function).operations]
    return [op for op in ops if not is_constant(op)]


def returned(function: ir.Operation) -> list[ir.Value]:
    """What the function returns."""
    *_, end = body_of(function).operations
    return list(end.operands)


def callee_of(call: ir.Operation) -> str:
    """The name of the function that a `func.call` calls."""
    return text_of(call, "callee")
