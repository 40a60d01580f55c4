"""What a user names for float32 or int16: a module by its path, an ATen op by its name, or an op within a module."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Sequence

from torch.export import ExportedProgram
from torch.fx import Node

from tosaic.frontend.canonical import placeholders
from tosaic.support.errors import ModelError

_NAMED = 40
"""What a message lists: the shortest, which are ops and outer modules."""


def is_named(node: Node, given: Sequence[str]) -> bool:
    """Whether one of the names given (`layers.0`, `aten.softmax`, `layers.0:softmax`) is a name of `node`."""
    names = names_of(node)
    return any(pattern.removeprefix("aten.") in names for pattern in given)


_CUSTOM, _KEPT = "custom", "tosaic"  # in a node's meta, where torch.export keeps it
_FLOAT, _INT16 = "float32", "int16"


def keep_float(nodes: Iterable[Node]) -> None:
    """Mark nodes to stay float32, whatever a user names."""
    for node in nodes:
        _set_mark(node, _FLOAT)


def widen(node: Node) -> None:
    """Mark a node to have int16 activations."""
    _set_mark(node, _INT16)


def stays_float(node: Node, named: Sequence[str]) -> bool:
    """Whether a node is named, or marked, to stay float32."""
    return is_named(node, named) or _mark(node) == _FLOAT


def has_int16(node: Node, named: Sequence[str]) -> bool:
    """Whether a node is named, or marked, to have int16 activations."""
    return is_named(node, named) or _mark(node) == _INT16


def _set_mark(node: Node, mark: str) -> None:
    node.meta[_CUSTOM] = {**(node.meta.get(_CUSTOM) or {}), _KEPT: mark}


def _mark(node: Node) -> str | None:
    return (node.meta.get(_CUSTOM) or {}).get(_KEPT)


def refuse_unmatched(program: ExportedProgram, given: Iterable[str]) -> None:
    """Check that every name names something.

    Raises:
        ModelError: one names no module, no op and no input of the program.
    """
    calls = (node for node in program.graph.nodes if node.op == "call_function")
    nodes = [*placeholders(program), *calls]
    known = sorted({name for node in nodes if node.target is not operator.getitem for name in names_of(node)})
    for pattern in given:
        if pattern.removeprefix("aten.") not in known:
            near = difflib.get_close_matches(pattern, known, 3)
            some = ", ".join(sorted(known, key=len)[:_NAMED]) + (", ..." if len(known) > _NAMED else "")
            raise ModelError(
                f"`{pattern}` names no module and no op of the model",
                hint=f"did you mean {' or '.join(near)}?" if near else f"name one of {some}",
            )


def names_of(node: Node) -> list[str]:
    """What a user may call a node: its op, every module that it is in, and the op in each of these, outermost first."""
    op = str(node.target).removeprefix("aten.").removeprefix("tosaic.").partition(".")[0]
    paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    return [*paths, op, *(f"{path}:{op}" for path in paths)]
