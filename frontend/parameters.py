"""Parameters and buffers of a graph module by the nodes that read them, and calls that it gains."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg


def parameter(module: GraphModule, node: Node) -> Tensor:
    """The values that a `get_attr` node reads."""
    return operator.attrgetter(str(node.target))(module).detach()


def add_buffer(module: GraphModule, node: Node, values: Tensor, role: str = "value") -> Node:
    """A buffer of the module, read before `node`."""
    name = f"_folded_{node.name}_{role}"
    module.register_buffer(name, values)
    with module.graph.inserting_before(node):
        made = module.graph.get_attr(name)
    made.meta = {"val": values}
    return made


def add_call(module: GraphModule, node: Node, target: Any, *args: Any) -> Node:
    """A call before `node`, which stands for its line and module; its result is as `target` makes it."""
    with module.graph.inserting_before(node):
        made = module.graph.call_function(target, args)
    made.meta = {**node.meta, "val": target(*map_arg(args, lambda one: one.meta["val"]))}
    return made
