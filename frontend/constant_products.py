"""Products by constants as linear layers: with weights of a scale a channel, and the kernels of layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tosaic.frontend.canonical import arguments
from tosaic.frontend.exclusion import has_int16
from tosaic.frontend.parameters import add_buffer, add_call, parameter

aten = torch.ops.aten
PRODUCTS = {aten.mm.default, aten.bmm.default, aten.matmul.default}
_MOST = 64
"""Products of matrices that are a layer each."""


def raise_constant_products(module: GraphModule, activations: str, named: Sequence[str]) -> None:
    """Products of floats by a constant, on either side, become linear layers in place: one for each matrix of it.

    A constant on the left is one on the right of what is transposed. Products of int16 stay, whose constants have 16
    bits, as weights have not.

    Args:
        activations: of all nodes that no name, and no mark, gives others.
        named: names of nodes that stay as they are.
    """
    for node in list(module.graph.nodes) if activations == "int8" else ():
        if node.target not in PRODUCTS or not node.meta["val"].is_floating_point() or has_int16(node, named):
            continue
        left, right = arguments(node)[:2]
        if (left.op == "get_attr") == (right.op == "get_attr"):
            continue
        product = _LayersOfProduct(module, node)
        if right.op == "get_attr":
            found = product.by(left, parameter(module, right))
        else:
            turned = product.by(_turned(product, right), _columns_of(parameter(module, left)))
            found = None if turned is None else _turned(product, turned)
        if found is not None:
            node.replace_all_uses_with(product.made(aten.reshape.default, found, list(node.meta["val"].shape)))
            module.graph.erase_node(node)


class _LayersOfProduct:
    """Builds what stands for a node, right before it."""

    def __init__(self, module: GraphModule, node: Node) -> None:
        self._module, self._node = module, node
        self.made = partial(add_call, module, node)

    def by(self, x: Node, constant: Tensor) -> Node | None:
        """`x @ constant` (..., rows, columns); None where that is too many layers."""
        matrices = constant[:, None] if constant.ndim == 1 else constant
        if x.meta["val"].ndim == 1:
            x = self.made(aten.reshape.default, x, [1, -1])
        (*outer, rows, depth), (*several, _, columns) = x.meta["val"].shape, matrices.shape
        while several[:1] == [1]:
            several.pop(0)
        before, own = outer[: len(outer) - len(several)], outer[max(0, len(outer) - len(several)) :]
        if not several:
            return self._layer(x, self._weight(matrices.reshape(depth, columns), 0))
        together = np.broadcast_shapes(tuple(own), tuple(several))
        if math.prod(together) > _MOST:
            return None
        parted = self.made(aten.reshape.default, x, [math.prod(before), math.prod(own), rows, depth])
        weights = [self._weight(one, n) for n, one in enumerate(matrices.reshape(-1, depth, columns))]
        layers = [
            self._layer(self.made(aten.select.int, parted, 1, taken), weights[number])
            for taken, number in zip(_numbers(own, together), _numbers(several, together), strict=True)
        ]
        stacked = self.made(aten.stack.default, layers, 1)
        return self.made(aten.reshape.default, stacked, [*before, *together, rows, columns])

    def _weight(self, matrix: Tensor, number: int) -> Node:
        return add_buffer(self._module, self._node, matrix.t().contiguous(), f"weight{number}")

    def _layer(self, x: Node, weight: Node) -> Node:
        return self.made(aten.linear.default, x, weight)


def _numbers(shape: Sequence[int], broadcast: Sequence[int]) -> list[int]:
    """Which element each is of what a shape is broadcast to."""
    return np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), broadcast).ravel().tolist()


def _turned(product: _LayersOfProduct, x: Node) -> Node:
    """With the last two axes exchanged; a vector is a row."""
    if x.meta["val"].ndim == 1:
        return product.made(aten.reshape.default, x, [1, -1])
    return product.made(aten.transpose.int, x, -2, -1)


def _columns_of(constant: Tensor) -> Tensor:
    return constant if constant.ndim == 1 else constant.transpose(-2, -1)
