"""A calibrated graph: what was seen of each tensor stands beside the node that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn
from torch.fx import GraphModule, Node

from tosaic.frontend.observer import RangeObserver


@dataclass
class Calibrated:
    """The observers of a graph, by the nodes that call them."""

    module: GraphModule
    _calls: dict[RangeObserver, list[Node]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for node in self.module.graph.nodes:
            if (observer := self.observer(node)) is not None:
                self._calls.setdefault(observer, []).append(node)

    def observer(self, node: object) -> RangeObserver | None:
        """The observer that `node` is a call of."""
        if not isinstance(node, Node) or node.op != "call_module":
            return None
        found: nn.Module = self.module.get_submodule(str(node.target))
        return found if isinstance(found, RangeObserver) else None

    def result(self, node: Node) -> RangeObserver | None:
        """The observer of a node's result."""
        return next((found for user in node.users if (found := self.observer(user))), None)

    def calls(self, observer: RangeObserver) -> Sequence[Node]:
        """The nodes that call an observer."""
        return self._calls.get(observer, ())

    def give(self, observer: RangeObserver, other: RangeObserver) -> None:
        """Let the calls of one observer be calls of another."""
        if observer is other:
            return
        for call in self.calls(observer):
            owner, _, name = str(call.target).rpartition(".")
            setattr(self.module.get_submodule(owner), name, other)
        self._calls.setdefault(other, []).extend(self._calls.pop(observer, ()))

    @staticmethod
    def scale(observer: RangeObserver) -> float:
        """What a step of the stored integers is worth."""
        return observer.calculate_qparams()[0].item()
