"""GATHER and SCATTER of several batches become those of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape


@register
@dataclass(frozen=True)
class OneBatch(ModulePass):
    """Let the indices of a GATHER, and known ones of a SCATTER, count the rows of all batches.

    An Ethos-U85 takes the indices of the first batch for all (Vela 5.2.0). Those of a SCATTER that are computed may
    name no row at all, and so they stay.
    """

    name: ClassVar[str] = "one-batch"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [gather_of_one_batch, scatter_of_one_batch])


@pattern("tosa.gather")
def gather_of_one_batch(op: ir.Operation) -> Replacement:
    """`gather(values, indices)` -> `reshape(gather(reshape(values), reshape(indices + batch * rows)))`."""
    values, indices = op.operands
    batches, _, width = shape_of(values)
    if batches == 1:
        return None
    rows = _all_rows(values, indices)
    count = shape_of(rows)[1]
    found = emit("gather", [_joined(values), rows], (1, count, width), element_type(values))
    return reshape(found, shape_of(op.results[0]))


@pattern("tosa.scatter")
def scatter_of_one_batch(op: ir.Operation) -> Replacement:
    """The same of a SCATTER by constant indices."""
    values, indices, written = op.operands
    if shape_of(values)[0] == 1 or constant_value(indices) is None:
        return None
    whole = _joined(values)
    operands = [whole, _all_rows(values, indices), _joined(written)]
    found = emit("scatter", operands, shape_of(whole), element_type(values))
    return reshape(found, shape_of(op.results[0]))


def _joined(x: ir.Value) -> ir.Value:
    batches, rows, width = shape_of(x)
    return reshape(x, (1, batches * rows, width))


def _all_rows(values: ir.Value, indices: ir.Value) -> ir.Value:
    """Indices of the rows of all batches, (1, count)."""
    batches, rows, _ = shape_of(values)
    first, known = np.arange(batches, dtype=np.int32)[:, None] * rows, constant_value(indices)
    count = shape_of(indices)[1] * batches
    if known is not None:
        return constant((known + first).astype(np.int32).reshape(1, count))
    return reshape(emit("add", [indices, constant(first)], shape_of(indices), "i32"), (1, count))
