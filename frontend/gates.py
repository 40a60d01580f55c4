"""Channels of a gated product become more alike before a linear layer reads it: its format has one step for all.

The other factor's linear layer takes a scale for each channel, and the reader its inverse: float results stay (Nagel et
al. 2019; to a gate, which lies between the two, it does nothing). The scale is a root, as SmoothQuant's is (Xiao et al.
2023). A gated layer of a language model has a few channels that are far greater than the others, and all of them in one
range would clip fresh data, of which calibration does not know the greatest in each channel.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from tosaic.frontend.canonical import arguments, complete_arguments
from tosaic.frontend.grouped_weights import group_of
from tosaic.frontend.parameters import add_buffer, parameter

aten = torch.ops.aten
_MOST = 16.0
"""The greatest scale, and its inverse the least."""


class _Gate(NamedTuple):
    factor: Node
    product: Node
    reader: Node


def balance_gates(
    module: GraphModule, batches: Sequence[tuple[Tensor, ...]], named: Sequence[str] = (), group: int = 0
) -> None:
    """reader(gate * linear(x)) with channels of the product nearer each other, in place.

    A channel loses the square root of how much greater it is than the middle one, so that the factor stays even, too.
    Layers of several methods whose weights are the same keep the same.

    Args:
        named, group: layers whose weights have four bits, in groups, which are left as they are.
    """
    gates = [
        gate
        for node in module.graph.nodes
        if (gate := _gate(node)) is not None
        and not any(group_of(each, named, group) for each in (gate.factor, gate.reader))
    ]
    if not gates:
        return
    watching = _Greatest(module, {gate.product for gate in gates})
    for batch in batches:
        watching.run(*batch, enable_io_processing=False)
    layers = defaultdict[bytes, list[_Gate]](list)
    for gate in gates:
        layers[_digest(module, gate)].append(gate)
    for alike in layers.values():
        greatest = torch.stack([watching.greatest[gate.product] for gate in alike]).amax(0)
        middle = greatest[greatest > 0].median() if greatest.any() else 1.0
        for gate in alike:
            _scale(module, gate, (greatest / middle).clamp(1 / _MOST**2, _MOST**2).rsqrt())
    module.recompile()


def _gate(product: Node) -> _Gate | None:
    """A product of one shape with what a linear layer gives, which nothing but a linear layer reads."""
    if product.target is not aten.mul.Tensor or len(product.users) != 1 or len(product.all_input_nodes) != 2:
        return None
    (reader,) = product.users
    factors = [node for node in reversed(product.all_input_nodes) if _is_own_linear(node) and len(node.users) == 1]
    alike = all(node.meta["val"].shape == product.meta["val"].shape for node in product.all_input_nodes)
    if not (alike and factors and _is_own_linear(reader) and arguments(reader)[0] is product):
        return None
    return _Gate(factors[0], product, reader)


def _is_own_linear(node: Node) -> bool:
    """Whether it is a linear layer with a matrix that no other reads."""
    if node.target is not aten.linear.default:
        return False
    matrix = arguments(node)[1]
    return matrix.op == "get_attr" and len(matrix.users) == 1


def _digest(module: GraphModule, gate: _Gate) -> bytes:
    """Of the weights on both sides of a product."""
    digest = hashlib.sha256()
    for layer in (gate.factor, gate.reader):
        digest.update(parameter(module, arguments(layer)[1]).numpy().tobytes())
    return digest.digest()


def _scale(module: GraphModule, gate: _Gate, scales: Tensor) -> None:
    image, matrix, bias = complete_arguments(gate.factor)
    rows = add_buffer(module, gate.factor, parameter(module, matrix) * scales[:, None], "weight")
    if bias is not None:
        bias = add_buffer(module, gate.factor, parameter(module, bias) * scales, "bias")
    gate.factor.args = (image, rows, bias)
    product, matrix, bias = complete_arguments(gate.reader)
    columns = add_buffer(module, gate.reader, parameter(module, matrix) / scales, "weight")
    gate.reader.args = (product, columns, bias)


class _Greatest(Interpreter):
    """The greatest magnitude of each channel of some nodes."""

    def __init__(self, module: GraphModule, watched: set[Node]) -> None:
        super().__init__(module)
        self.greatest = dict[Node, Tensor]()
        self._watched = watched
        nodes = list(module.graph.nodes)
        self._behind = set(nodes[max(map(nodes.index, watched)) + 1 :])

    def run_node(self, n: Node) -> Any:
        if n in self._behind:  # the layer that gives scores may be the greatest of a model
            return None
        found = super().run_node(n)
        if n in self._watched:
            seen = found.detach().abs().flatten(0, -2).amax(0)
            self.greatest[n] = seen.maximum(self.greatest.get(n, seen))
        return found
