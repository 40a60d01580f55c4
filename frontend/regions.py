"""Pointwise regions: ops in a row that are a function of one tensor, and are quantized as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Graph, Node

from tosaic.frontend.canonical import is_float
from tosaic.frontend.lowerings.op_quantization import Clamp
from tosaic.frontend.lowerings.registry import op_quantization, registered


@dataclass(frozen=True)
class Region:
    """A function of `source`, computed by `nodes` in order, the last of which gives the result."""

    source: Node
    nodes: tuple[Node, ...]

    @property
    def has_steps(self) -> bool:
        return any(registered()[node.target].steps for node in self.nodes)


def pointwise_regions(graph: Graph, excluded: Callable[[Node], bool]) -> list[Region]:
    """The regions of floats that are quantized as one: of several ops, or of one that is not quantized by itself.

    A clamp starts none: it becomes a part of what is before it.

    Args:
        excluded: nodes that no region may hold.
    """
    constants = _constants(graph)
    ends: set[Node] = set()
    while True:
        sources = _sources(graph, constants, ends, excluded)
        inner = {node for node in sources if node not in ends}
        found = {node for node in inner if any(sources.get(user) is not sources[node] for user in _readers(node))}
        if not found:
            break
        ends |= found
    regions = [Region(sources[end], _behind(end, sources, ends)) for end in sources if end in ends]
    return [region for region in regions if _is_unit(region)]


def _is_unit(region: Region) -> bool:
    first, *others = region.nodes
    return bool(others or op_quantization(first) is None) and is_float(region.source) and is_float(region.nodes[-1])


def _sources(graph: Graph, constants: set[Node], ends: set[Node], excluded: Callable[[Node], bool]) -> dict[Node, Node]:
    """The one tensor that each node of a region is a function of."""
    sources: dict[Node, Node] = {}
    for node in graph.nodes:
        lowering = registered().get(node.target)
        if lowering is None or not lowering.pointwise or excluded(node):
            continue
        inputs = [one for one in node.all_input_nodes if not (one in constants and _is_number(one))]
        found = {sources[one] if one in sources and one not in ends else one for one in inputs}
        if len(found) != 1 or any(_shape(one) != _shape(node) for one in (*inputs, *found)):
            continue
        value = _value(node)
        if value is None or value.dtype not in (torch.float32, torch.bool):
            continue
        within = any(one in sources and one not in ends for one in inputs)
        if within or not isinstance(lowering.quantized, Clamp):
            (sources[node],) = found
    return sources


def _readers(node: Node) -> list[Node]:
    """The users but for assertions."""
    return [user for user in node.users if user.users or user.op == "output"]


def _behind(end: Node, sources: dict[Node, Node], ends: set[Node]) -> tuple[Node, ...]:
    """The nodes of the region that ends with `end`, in order."""
    members, pending = {end}, [end]
    while pending:
        for one in pending.pop().all_input_nodes:
            if one in sources and one not in ends and one not in members:
                members.add(one)
                pending.append(one)
    return tuple(node for node in sources if node in members)


def _constants(graph: Graph) -> set[Node]:
    """The nodes that no input of the model has a part in."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op == "get_attr" or (node.op == "call_function" and found.issuperset(node.all_input_nodes)):
            found.add(node)
    return found


def _value(node: Node) -> Tensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, Tensor) else None


def _shape(node: Node) -> torch.Size | None:
    value = _value(node)
    return None if value is None else value.shape


def _is_number(node: Node) -> bool:
    value = _value(node)
    return value is not None and value.numel() == 1
