"""The command streams of a build, and the user's lines behind their ops."""

from __future__ import annotations

from tosaic.support.functions import computing_ops
from tosaic.support.locations import describe
from tosaic.support.mlir import ir

STREAMS = "npu"
"""The folder of a build that holds the command stream of each region, as Arm's core driver takes it."""


def source_lines(function: ir.Operation) -> list[str]:
    """The user's line behind each op of an NPU function, by the number that `NpuOp.index` has."""
    return [describe(op.location) for op in computing_ops(function)]
