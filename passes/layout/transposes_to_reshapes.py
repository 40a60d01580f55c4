"""Transposes that move only dimensions of size 1 are reshapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.layout.permutation import moves_only_units, permutation_of
from tosaic.passes.layout.sink_transposes import cancel
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.reshapes import merge_reshapes
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import reshape


@register
@dataclass(frozen=True)
class TransposesToReshapes(ModulePass):
    """Write transposes that only move dimensions of size 1 as reshapes, which cost nothing."""

    name: ClassVar[str] = "transposes-to-reshapes"

    def run(self, module: ir.Module) -> None:
        rewrite(module, PATTERNS)


@pattern("tosa.transpose")
def to_reshape(op: ir.Operation) -> Replacement:
    """A transpose that keeps the order of all dimensions larger than 1 is a reshape."""
    x = op.operands[0]
    return reshape(x, shape_of(op.results[0])) if moves_only_units(shape_of(x), permutation_of(op)) else None


PATTERNS = [cancel, to_reshape, merge_reshapes]
"""None applies any more once the pass has run."""
