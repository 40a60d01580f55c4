"""Which tensors are int16 where a user names some: what the ops named give, and what these cannot do without."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping

from torch.fx import Node

from tosaic.frontend.canonical import is_float
from tosaic.frontend.lowerings.op_quantization import Averaged, Clamp, OneToOne, Recurrent, Shared
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.regions import Region

_AS_FINE = OneToOne | Recurrent | Shared | Averaged
"""Ops whose result has no more digits than what they read."""


def int16_results(named: Iterable[Node], regions: Mapping[Node, Region]) -> set[Node]:
    """The nodes whose results are int16: those named, and what one to one functions, averages and moves of these read,
    as far up as they go. Whatever reads them takes int16, and its own result stays as it is.

    Args:
        regions: ops that are one function together, by each of them.
    """
    wide = set(named)
    wide |= {regions[node].nodes[-1] for node in wide if node in regions}
    wide |= {user for node in wide for user in node.users if len(node.users) == 1 and _is_clamp(user)}
    waiting = list(wide)
    while waiting:
        sources = _as_fine(waiting.pop(), regions) - wide
        wide |= sources
        waiting += sources
    return wide


def _as_fine(node: Node, regions: Mapping[Node, Region]) -> set[Node]:
    """Of what a node reads all that is int16 where the node's result is."""
    if node in regions:
        return {regions[node].source}
    if node.target is operator.getitem or isinstance(op_quantization(node), _AS_FINE):
        return {source for source in node.all_input_nodes if is_float(source) and source.op != "get_attr"}
    return set()


def _is_clamp(node: Node) -> bool:
    return isinstance(op_quantization(node), Clamp)
