"""Ops that change nothing vanish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.integers import RANGES, clamp_limits, domain, rescale_of
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.permutation import permutation_of
from tosaic.passes.reshapes import merge_reshapes, reshape_of_constant
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.methods import entering_of
from tosaic.support.mlir import constant_value, element_type, ir


@register
@dataclass(frozen=True)
class FoldIdentities(ModulePass):
    """Remove ops that return their operand, and move what is known into constants."""

    name: ClassVar[str] = "fold-identities"

    def run(self, module: ir.Module) -> None:
        rewrite(module, PATTERNS)


@pattern("tosa.identity", "tosa.cast", "tosa.transpose", "tosa.slice", "tosa.tile", "tosa.pad", "tosa.concat")
def same_value(op: ir.Operation) -> Replacement:
    """Moves and casts that keep every element where it is."""
    x = op.operands[0]
    if x.type != op.results[0].type or entering_of(op):
        return None
    if op.name == "tosa.transpose":
        perm = permutation_of(op)
        return x if list(perm) == sorted(perm) else None
    return x


@pattern("tosa.rescale")
def rescale_without_effect(op: ir.Operation) -> Replacement:
    """A RESCALE that maps every value of its type to itself; for i32, one by exactly 1."""
    rescale = rescale_of(op)
    if rescale is None or rescale.source != rescale.target:
        return None
    if rescale.source == "i32":
        exact = rescale.multiplier == 1 << rescale.shift and (rescale.input_zp, rescale.output_zp) == (0, 0)
        return op.operands[0] if exact else None
    values = domain(rescale.source)
    return op.operands[0] if (rescale(values) == values).all() else None


@pattern("tosa.clamp")
def clamp_without_effect(op: ir.Operation) -> Replacement:
    """A clamp to the whole range of its type."""
    kind = str(element_type(op.results[0]))
    return op.operands[0] if kind in RANGES and clamp_limits(op) == RANGES[kind] else None


@pattern("tosa.table")
def table_without_effect(op: ir.Operation) -> Replacement:
    """A TABLE of i8 that maps every value to itself."""
    entries = constant_value(op.operands[1])
    if entries is None or entries.size != 256 or (entries != domain("i8")).any():
        return None
    return op.operands[0]


PATTERNS = [
    same_value, rescale_without_effect, clamp_without_effect, table_without_effect, merge_reshapes, reshape_of_constant,
]  # fmt: skip
"""None applies any more once the pass has run."""
