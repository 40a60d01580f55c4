"""COND_IF as SELECT: both ways are computed, and of each result the one that holds is taken."""

from __future__ import annotations

from tosaic.support.mlir import element_type, ir, shape_of, walk
from tosaic.support.tosa_builder import emit, reshape

_BRANCH = "tosa.cond_if"


def select_branches(main: ir.Operation) -> None:
    """Write both branches of every COND_IF of a function in its place, those inside of others first."""
    for op in reversed(list(walk(main))):
        if op.name == _BRANCH:
            with op.location, ir.InsertionPoint(op):
                _select(op)


def _select(branch: ir.Operation) -> None:
    condition, *given = branch.operands
    ways = [_written_before(branch, region.blocks[0], given) for region in branch.regions]
    for result, one, other in zip(branch.results, *ways, strict=True):
        shape = shape_of(result)
        which = reshape(condition, (1,) * len(shape))
        result.replace_all_uses_with(emit("select", [which, one, other], shape, element_type(result)))
    branch.erase()


def _written_before(branch: ir.Operation, block: ir.Block, given: list[ir.Value]) -> list[ir.Value]:
    """The ops of a block, called with `given`, before the branch; returns what the block yields."""
    for argument, value in zip(block.arguments, given, strict=True):
        argument.replace_all_uses_with(value)
    *ops, end = [op.operation for op in block.operations]
    for op in ops:
        op.move_before(branch)
    return list(end.operands)
