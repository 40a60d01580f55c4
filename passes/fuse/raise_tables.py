"""A TABLE stands before the reshape of what it reads, right behind the op that computes that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class RaiseTables(ModulePass):
    """Look up before a reshape, not behind it: so the TABLE may join the kernel that computes what is looked up."""

    name: ClassVar[str] = "raise-tables"
    phase: ClassVar[str] = "cpu"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [raise_table])


@pattern("tosa.table")
def raise_table(op: ir.Operation) -> Replacement:
    """`table(reshape(x))` -> `reshape(table(x))` where x is computed for the table alone."""
    x, entries = op.operands
    first = producer(x, "tosa.reshape")
    if first is None or producer(first.operands[0]) is None or len(users(x)) > 1 or len(users(first.operands[0])) > 1:
        return None
    source, result = first.operands[0], op.results[0]
    return reshape(emit("table", [source, entries], shape_of(source), str(element_type(result))), shape_of(result))
