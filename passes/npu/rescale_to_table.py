"""RESCALEs of int8 become TABLEs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.integers import unary_function
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.tosa_builder import emit
from tosaic.support.values import producer

_LOOK_UP = ("tosa.rescale", "tosa.clamp", "tosa.avg_pool2d", "tosa.max_pool2d")


@register
@dataclass(frozen=True)
class RescaleToTable(ModulePass):
    """Make a RESCALE of int8 to int8 a TABLE where Ethos-U can look it up within the op before.

    A RESCALE takes an op of its own.
    """

    name: ClassVar[str] = "rescale-to-table"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [looked_up])


@pattern("tosa.rescale")
def looked_up(op: ir.Operation) -> Replacement:
    """`rescale(x)` -> `table(x)` with its 256 results, where x is computed, not moved."""
    entries = unary_function(op)
    if entries is None or producer(op.operands[0], *_LOOK_UP) is None:
        return None
    return emit("table", [op.operands[0], constant(entries)], shape_of(op.results[0]), "i8")
