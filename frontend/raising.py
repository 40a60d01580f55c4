"""Core ATen raised to the layers it came from, so that an already decomposed program quantises like any other."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tosaic.frontend.canonical import arguments

aten = torch.ops.aten
_TRANSPOSES = (aten.permute.default, aten.t.default, aten.transpose.int)
# Ops whose first result alone is used, and the op that gives no other.
_FIRST: dict[Any, Any] = {
    aten.native_layer_norm.default: aten.layer_norm.default,
    aten.max_pool2d_with_indices.default: aten.max_pool2d.default,
}
_RENAMED: dict[Any, Any] = {aten._adaptive_avg_pool2d.default: aten.adaptive_avg_pool2d.default}


def raise_core_aten(module: GraphModule) -> None:
    """Rewrite convolution, addmm and mm by a transposed weight, native_layer_norm and pools in place."""
    for node in list(module.graph.nodes):
        rewrite = _REWRITES.get(node.target)
        if rewrite:
            rewrite(module, node)
        elif node.target in _FIRST and _only_first(node):
            for user in list(node.users):
                _replace(module, user, _FIRST[node.target], arguments(node))
        elif node.target in _RENAMED:
            _replace(module, node, _RENAMED[node.target], arguments(node))
    module.graph.eliminate_dead_code()
    module.recompile()


def _only_first(node: Node) -> bool:
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)


def _convolution(module: GraphModule, node: Node) -> None:
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = arguments(node)
    rank = weight.meta["val"].ndim if "val" in weight.meta else node.meta["val"].ndim
    if rank == 4 and transposed:
        args = (x, weight, bias, stride, padding, output_padding, groups, dilation)
        _replace(module, node, aten.conv_transpose2d.input, args)
    elif rank in (3, 4) and not transposed:
        target = aten.conv2d.default if rank == 4 else aten.conv1d.default
        _replace(module, node, target, (x, weight, bias, stride, padding, dilation, groups))


def _addmm(module: GraphModule, node: Node) -> None:
    bias, x, mat2 = arguments(node)[:3]
    weight = _transposed(mat2)
    if weight and not node.kwargs and bias.meta["val"].ndim == 1:
        _replace(module, node, aten.linear.default, (x, weight, bias))


def _mm(module: GraphModule, node: Node) -> None:
    x, mat2 = arguments(node)
    weight = _transposed(mat2)
    if weight:
        _replace(module, node, aten.linear.default, (x, weight))


def _transposed(node: Node) -> Node | None:
    """The parameter that a transposition takes."""
    source = arguments(node)[0] if node.target in _TRANSPOSES else None
    return source if isinstance(source, Node) and source.op == "get_attr" else None


def _replace(module: GraphModule, node: Node, target: Any, args: tuple) -> None:
    with module.graph.inserting_before(node):
        raised = module.graph.call_function(target, args)
    raised.meta = dict(node.meta)
    node.replace_all_uses_with(raised)
    module.graph.erase_node(node)


_REWRITES: dict[Any, Callable[[GraphModule, Node], None]] = {
    aten.convolution.default: _convolution,
    aten.addmm.default: _addmm,
    aten.mm.default: _mm,
}
