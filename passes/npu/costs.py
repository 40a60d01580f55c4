"""What a module costs on the NPU of each target: passes know no backend, the driver tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tosaic.support.mlir import ir

Cost: TypeAlias = Callable[[ir.Module], "int | None"]
"""The NPU's cycles for `main` alone; None where it cannot run it."""

COSTS: dict[str, Cost] = {}
