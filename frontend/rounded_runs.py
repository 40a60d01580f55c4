"""Runs of a calibrated graph with some of its tensors rounded: what that does to the outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torchao.quantization.pt2e.observer import ObserverBase

from tosaic.frontend.bias_correction import (
    Batch,
    corrected,
    fake_quantize,
    mean_error,
    observer_of,
    own_bias,
    ratio_db,
    spread,
)
from tosaic.frontend.canonical import arguments
from tosaic.frontend.lowerings.op_quantization import Shared, Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.quiet import quietly

_SAMPLES, _FEWEST, _HELD_BYTES = 16, 2, 2**28


@dataclass
class RoundedRuns:
    """A calibrated graph on samples: every tensor in float, from which each run computes what changes, and no more.

    A mean error that quantization leaves in a channel of products is taken out of it, as the bias does in a build.

    Args:
        module: its observers see nothing more.
        batches: of which a few are used, evenly spread: as many as a quarter of a GiB holds with all their tensors.
    """

    module: GraphModule
    batches: Sequence[Batch]
    _exact: dict[Node, list[Any]] = field(default_factory=dict, init=False)
    _last: dict[Node, Node] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        module, size = self.module, 0
        for node in module.graph.nodes:
            value = node.meta.get("val")
            size += value.nbytes if isinstance(value, Tensor) and node.op == "call_function" else 0
        count = max(_FEWEST, min(_SAMPLES, _HELD_BYTES // max(1, size)))
        with quietly():
            runs = [float_values(module, batch) for batch in spread(self.batches, count)]
        self._last = {one: node for node in module.graph.nodes for one in node.all_input_nodes}
        self._exact = {node: [run[node] for run in runs] for node in module.graph.nodes}

    @property
    def observed(self) -> list[Node]:
        """The calls of observers, but of biases'."""
        return [node for node in self._exact if self._observer(node) is not None]

    def is_own(self, node: Node) -> bool:
        """Whether an observed node rounds something, and not what is rounded already."""
        return bool(node.users) and not isinstance(op_quantization(source_of(node)), Shared)

    def db(self, rounded: Collection[Node]) -> float:
        """Signal to noise of the worst output where what these observed nodes see is quantized, and nothing else."""
        changed: dict[Node, list[Any]] = {}
        with quietly():
            for node in self._exact:
                inputs = node.all_input_nodes
                if node in rounded:
                    changed[node] = self._rounded(node, changed)
                elif node.op.startswith("call") and any(one in changed for one in inputs):
                    changed[node] = self._computed(node, changed)
                for one in inputs:
                    if self._last[one] is node and node.op != "output":
                        changed.pop(one, None)
        return self._worst_db(changed)

    def _observer(self, node: Node) -> Any:
        found = observer_of(self.module, node)
        return None if hasattr(found, "derive_qparams_fn") else found

    def _rounded(self, node: Node, changed: dict[Node, list[Any]]) -> list[Any]:
        observer, (source,) = self._observer(node), node.all_input_nodes
        values = changed.get(source, self._exact[source])
        if source_of(node).op == "get_attr":
            return [fake_quantize(observer, values[0])] * len(values)
        return [fake_quantize(observer, value) for value in values]

    def _computed(self, node: Node, changed: dict[Node, list[Any]]) -> list[Any]:
        if node.op == "call_module":
            return changed[node.all_input_nodes[0]]
        target: Any = node.target

        def computed(index: int) -> Any:
            args, kwargs = map_arg((node.args, node.kwargs), lambda one: changed.get(one, self._exact[one])[index])
            return target(*args, **kwargs)

        results = [computed(index) for index in range(len(self._exact[node]))]
        op = op_quantization(node)
        if isinstance(op, Weighted) and own_bias(node) is not None:
            error = mean_error(self._exact[node], results, op.result_axis)
            return corrected(results, error, op.result_axis)
        return results

    def _worst_db(self, changed: dict[Node, list[Any]]) -> float:
        results = pytree.tree_leaves(arguments(self.module.graph.output_node())[0])
        return min((self._db(one, changed[one]) for one in results if one in changed), default=math.inf)

    def _db(self, result: Node, values: Sequence[Any]) -> float:
        exact = self._exact[result]
        return ratio_db(zip(exact, values, strict=True)) if exact[0].is_floating_point() else math.inf


class _Floats(Interpreter):
    """Runs a calibrated graph without its observers."""

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (
            args[0] if isinstance(self.fetch_attr(target), ObserverBase) else super().call_module(target, args, kwargs)
        )


def float_values(module: GraphModule, batch: Batch) -> dict[Node, Any]:
    """The values of a calibrated graph's nodes without quantization."""
    run = _Floats(module, garbage_collect_values=False)
    run.run(*batch, enable_io_processing=False)
    return run.env


def source_of(node: Node) -> Node:
    """The node whose result an observer rounds."""
    while node.op == "call_module":
        (node,) = node.all_input_nodes
    return node
