"""Which tensors are int16 where a user names some: what the ops named give, and what these cannot do without."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from torch.fx import Graph, Node

from tosaic.frontend.canonical import is_float
from tosaic.frontend.lowerings.op_quantization import Averaged, Clamp, OneToOne, Recurrent, Shared
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.regions import Region

_AS_FINE = OneToOne | Recurrent | Shared | Averaged
"""Ops whose result has no more digits than what they read."""


def int16_results(graph: Graph, named: Iterable[Node], regions: Sequence[Region]) -> set[Node]:
    """The nodes whose results are int16: those named, and what one to one functions, averages and moves of these read,
    as far up as they go. Whatever reads them takes int16, and its own result stays as it is.

    Args:
        regions: ops that are one function together.
    """
    ends = {node: region for region in regions for node in region.nodes}
    wide = set(named)
    wide |= {ends[node].nodes[-1] for node in wide if node in ends}
    wide |= {user for node in wide for user in node.users if len(node.users) == 1 and _is_clamp(user)}
    for node in reversed(graph.nodes):
        if node not in wide:
            continue
        if node in ends:
            wide.add(ends[node].source)
        elif node.target is operator.getitem or isinstance(op_quantization(node), _AS_FINE):
            wide |= {source for source in node.all_input_nodes if is_float(source) and source.op != "get_attr"}
    return wide


def _is_clamp(node: Node) -> bool:
    return isinstance(op_quantization(node), Clamp)
