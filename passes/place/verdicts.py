"""What a target's NPU says of an op, by the name of the target: passes know no backend, the driver tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tosaic.support.errors import unknown_name
from tosaic.support.mlir import ir

Verdict: TypeAlias = Callable[[ir.Operation], "str | None"]
"""Of an op of `main`: None when the NPU runs it, else the reason why not."""


def everything_on_cpu(op: ir.Operation) -> str:
    """The verdict of a target without an NPU: no op goes there, and nothing needs a reason."""
    return ""


VERDICTS: dict[str, Verdict] = {"": everything_on_cpu}


def verdict_of(target: str) -> Verdict:
    """The verdict of a target; of none, that everything stays on the CPU.

    Raises:
        Error: there is none; the message names the nearest, or all.
    """
    if target not in VERDICTS:
        raise unknown_name("target", target, sorted(VERDICTS)[1:])
    return VERDICTS[target]
