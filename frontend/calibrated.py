"""A calibrated graph: what was seen of each tensor stands beside the node that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn
from torch.fx import GraphModule, Node

from tosaic.frontend.observer import RangeObserver


@dataclass
class Calibrated:
    """The observers of a graph, by the nodes that call them."""

    module: GraphModule

    def observer(self, node: object) -> RangeObserver | None:
        """The observer that `node` is a call of."""
        if not isinstance(node, Node) or node.op != "call_module":
            return None
        found: nn.Module = self.module.get_submodule(str(node.target))
        return found if isinstance(found, RangeObserver) else None

    def result(self, node: Node) -> RangeObserver | None:
        """The observer of a node's result."""
        return next((found for user in node.users if (found := self.observer(user))), None)

    def calls(self, observer: RangeObserver) -> Iterator[Node]:
        """The nodes that call an observer."""
        return (node for node in self.module.graph.nodes if self.observer(node) is observer)

    @staticmethod
    def scale(observer: RangeObserver) -> float:
        """What a step of the stored integers is worth."""
        return observer.calculate_qparams()[0].item()
