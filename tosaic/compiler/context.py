"""The context of a model that generates."""

from __future__ import annotations

from tosaic.support.mlir import functions, ir, shape_of, walk


def places_of(module: ir.Module) -> int | None:
    """How many tokens the context of an integer module holds: the fewest rows of what it writes at a place that a call
    says; None where it writes nothing so."""
    rows = [shape_of(op.operands[0])[1] for op in walk(functions(module)["main"]) if op.name == "tosa.scatter"]
    return min(rows, default=None)
