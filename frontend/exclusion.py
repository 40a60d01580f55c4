"""What a user keeps in float32, by the path of a module or the name of an ATen op."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from torch.fx import Graph, Node

from tosaic.support.errors import ModelError


def is_excluded(node: Node, exclude: Sequence[str]) -> bool:
    """Whether one of the names in `exclude` (`layers.0`, `softmax`, `aten.softmax`) is a name of `node`."""
    names = _names(node)
    return any(pattern.removeprefix("aten.") in names for pattern in exclude)


def refuse_unmatched(graph: Graph, exclude: Iterable[str]) -> None:
    """Check that every exclusion names something.

    Raises:
        ModelError: one names no module and no op of the graph.
    """
    known = sorted({name for node in graph.nodes if node.op == "call_function" for name in _names(node)})
    for pattern in exclude:
        if pattern.removeprefix("aten.") not in known:
            near = difflib.get_close_matches(pattern, known, 3)
            raise ModelError(
                f"the exclusion `{pattern}` names no module and no op of the model",
                hint=f"did you mean {' or '.join(near)}?" if near else f"name one of {', '.join(known)}",
            )


def _names(node: Node) -> list[str]:
    """What a user may call a node: its op type, and every module path it is in."""
    op = str(node.target).removeprefix("aten.").partition(".")[0]
    return [op, *(path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path)]
