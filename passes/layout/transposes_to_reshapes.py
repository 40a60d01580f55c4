"""Transposes that move only dimensions of size 1 are reshapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import rewrite
from tosaic.passes.transposes import FEWEST
from tosaic.support.mlir import ir


@register
@dataclass(frozen=True)
class TransposesToReshapes(ModulePass):
    """Write transposes that only move dimensions of size 1 as reshapes, which cost nothing."""

    name: ClassVar[str] = "transposes-to-reshapes"

    def run(self, module: ir.Module) -> None:
        rewrite(module, FEWEST)
