"""Two clamps in a row are one; a clamp to the whole range, which RESCALE saturates to, is none (`fold-identities`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.integers import RANGES, clamp_limits
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import element_type, ir
from tosaic.support.tosa_builder import clamp
from tosaic.support.values import producer


@register
@dataclass(frozen=True)
class FuseClamp(ModulePass):
    """Fold a clamp into the clamp that feeds it."""

    name: ClassVar[str] = "fuse-clamp"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [clamp_of_clamp])


@pattern("tosa.clamp")
def clamp_of_clamp(op: ir.Operation) -> Replacement:
    """Two clamps are one: min(max(x, a), b) with both limits clamped by the second."""
    first = producer(op.operands[0], "tosa.clamp")
    if first is None or str(element_type(op.results[0])) not in RANGES:
        return None
    low, high = clamp_limits(op)
    inner_low, inner_high = (min(max(limit, low), high) for limit in clamp_limits(first))
    return clamp(first.operands[0], inner_low, inner_high)
