"""RESCALE that rounds twice, as ops of one rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import rewrite
from tosaic.passes.two_roundings import two_roundings
from tosaic.support.mlir import ir


@register
@dataclass(frozen=True)
class RoundTwice(ModulePass):
    """Write a RESCALE of DOUBLE_ROUND as two of SINGLE_ROUND."""

    name: ClassVar[str] = "round-twice"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [two_roundings])
