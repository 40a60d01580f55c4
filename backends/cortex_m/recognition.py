"""What families recognize in the function of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernel import KernelFamily, Workload
from tosaic.support.functions import computing_ops, returned
from tosaic.support.mlir import ir, shape_of

Match = tuple[KernelFamily, Workload]


@dataclass(frozen=True)
class Recognized:
    """What follows from a task's function, wherever it runs.

    Args:
        matches: the families that recognize it, in order, with what they recognized.
    """

    matches: Sequence[tuple[type[KernelFamily], Workload]]
    exact: bool
    name: str


@dataclass(frozen=True)
class Facts:
    """What follows from a task's data.

    Args:
        matches: the families that recognize the function, in order, with what they recognized.
    """

    matches: Sequence[Match]
    exact: bool
    key: str
    name: str


def name_of(kernel: ir.Operation) -> str:
    """Its ops and the shape of its first result."""
    ops = [op.name.removeprefix("tosa.") for op in computing_ops(kernel)]
    shape = "x".join(str(extent) for extent in shape_of(returned(kernel)[0]))
    return f"{'+'.join(dict.fromkeys(ops))} {shape}"
