"""Core ATen raised to the layers it came from, so that an already decomposed program quantizes like any other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.nn.utils.fusion import fuse_conv_bn_weights

from tosaic.frontend.canonical import TRANSPOSES, arguments, is_random
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.masks import MASKED, bound_masks
from tosaic.frontend.parameters import add_buffer, add_call, parameter
from tosaic.frontend.places import tabulate_places

aten = torch.ops.aten
# Ops whose first result alone is used, and the op that gives no other.
_FIRST: dict[Any, Any] = {
    aten.native_layer_norm.default: aten.layer_norm.default,
}
_BATCH_NORM = aten._native_batch_norm_legit_no_training.default
_LIMITS: dict[Any, float] = {aten.maximum.default: -torch.inf, aten.minimum.default: torch.inf}
_RENAMED: dict[Any, Any] = {aten._adaptive_avg_pool2d.default: aten.adaptive_avg_pool2d.default}


def raise_core_aten(module: GraphModule) -> None:
    """Rewrite addmm and mm, division, batch norm, native_layer_norm and pools in place.

    What is computed from parameters alone, or from nothing, becomes a buffer, and what is computed of a place alone a
    table; masks of attention become finite.
    """
    _fold_parameters(module, _behind_batch_norms(module))
    for node in list(module.graph.nodes):
        rewrite = _REWRITES.get(node.target)
        if rewrite:
            rewrite(module, node)
        elif node.target in _FIRST and _only_first(node):
            for user in list(node.users):
                _replace(module, user, _FIRST[node.target], arguments(node))
        elif node.target in _RENAMED:
            _replace(module, node, _RENAMED[node.target], arguments(node))
    _fold_parameters(module)
    tabulate_places(module)
    _drop_limits(module)
    _join_masks(module)
    bound_masks(module)
    module.graph.eliminate_dead_code()
    module.recompile()


def _behind_batch_norms(module: GraphModule) -> set[Node]:
    """What weights, biases, means and variances of batch norms are computed from."""
    norms = [node for node in module.graph.nodes if node.target is _BATCH_NORM]
    found, left = set[Node](), [one for node in norms for one in arguments(node)[1:5] if isinstance(one, Node)]
    while left:
        if (node := left.pop()) not in found:
            found.add(node)
            left += node.all_input_nodes
    return found


def _fold_parameters(module: GraphModule, only: Container[Node] | None = None) -> None:
    """Compute what parameters alone say.

    Args:
        only: nodes of which others are left.
    """
    several: dict[Node, Any] = {}  # results of nodes that have more than one
    for node in list(module.graph.nodes):
        sources = node.all_input_nodes
        if node.op != "call_function" or is_random(node) or (only is not None and node not in only):
            continue
        if any(source.op != "get_attr" and source not in several for source in sources):
            continue
        values = {source: several[source] if source in several else parameter(module, source) for source in sources}
        result = node.target(*map_arg(arguments(node), values.get), **map_arg(node.kwargs, values.get))
        if isinstance(result, Tensor):
            node.replace_all_uses_with(add_buffer(module, node, result.contiguous()))
            module.graph.erase_node(node)
        else:
            several[node] = result


def _drop_limits(module: GraphModule) -> None:
    """maximum(x, -inf) and minimum(x, inf) -> x, which reductions of other frameworks begin with."""
    for node in list(module.graph.nodes):
        limit = _LIMITS.get(node.target)
        if limit is None:
            continue
        for bound, x in (arguments(node), arguments(node)[::-1]):
            same = x.op != "get_attr" and x.meta["val"].shape == node.meta["val"].shape
            if same and bound.op == "get_attr" and bool((parameter(module, bound) == limit).all()):
                node.replace_all_uses_with(x)
                module.graph.erase_node(node)
                break


def _join_masks(module: GraphModule) -> None:
    """softmax(where(kept, x, low) + y) -> softmax(x + mask), where all but x is known: no sum is infinite."""
    for node in list(module.graph.nodes):
        total = arguments(node)[0] if node.target is aten.softmax.int else None
        if total is None or total.target is not aten.add.Tensor or total.kwargs or len(total.users) > 1:
            continue
        chosen, added = arguments(total)
        if chosen.target is not aten.where.self or len(chosen.users) > 1:
            continue
        kept, scores, low = arguments(chosen)
        if any(not isinstance(one, Node) or one.op != "get_attr" for one in (kept, low, added)):
            continue
        if parameter(module, low).max() <= MASKED:
            mask = torch.where(parameter(module, kept), 0.0, MASKED) + parameter(module, added)
            _replace(
                module, total, aten.add.Tensor, (scores, add_buffer(module, total, mask.clamp(min=MASKED), "mask"))
            )


def _only_first(node: Node) -> bool:
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)


def _addmm(module: GraphModule, node: Node) -> None:
    bias, x, mat2 = arguments(node)[:3]
    weight = _transposed(mat2)
    if weight and not node.kwargs and bias.meta["val"].ndim == 1:
        _replace(module, node, aten.linear.default, (x, weight, bias))
        return
    with module.graph.inserting_before(node):
        product = module.graph.call_function(aten.mm.default, (x, mat2))
        product.meta = dict(node.meta)
        terms = [product, bias]
        for index, name in enumerate(("alpha", "beta")):
            if name in node.kwargs:
                meta = dict(terms[index].meta)
                terms[index] = module.graph.call_function(aten.mul.Tensor, (terms[index], node.kwargs[name]))
                terms[index].meta = meta
    _replace(module, node, aten.add.Tensor, tuple(terms))


def _division(module: GraphModule, node: Node) -> None:
    """x / y -> x * (1 / y), both of which are quantized."""
    x, y = arguments(node)
    if not isinstance(y, Node) or not y.meta["val"].is_floating_point():
        return
    _replace(module, node, aten.mul.Tensor, (x, add_call(module, node, aten.reciprocal.default, y)))


def _mm(module: GraphModule, node: Node) -> None:
    x, mat2 = arguments(node)
    weight = _transposed(mat2)
    if weight and mat2.meta["val"].ndim == 2:
        _replace(module, node, aten.linear.default, (x, weight))


def _batch_norm(module: GraphModule, node: Node) -> None:
    """y = x * a + c: part of a convolution or a linear layer before it, else a depthwise convolution of 1x1, else a
    product and a sum."""
    x, *given, _momentum, epsilon = arguments(node)
    if any(isinstance(one, Node) and one.op != "get_attr" for one in given):
        _computed_batch_norm(module, node)
        return
    weight, bias, mean, variance = (parameter(module, one) if isinstance(one, Node) else None for one in given)
    if mean is None or variance is None or not _only_first(node):
        return
    if _is_fusible(x):
        image, matrix, *rest = arguments(x)
        before = parameter(module, rest[0]) if rest and rest[0] is not None else None
        norm = (mean, variance, epsilon, weight, bias, _weight_axis(x) == 1)
        fused = fuse_conv_bn_weights(parameter(module, matrix), before, *norm)
        made = [
            add_buffer(module, node, values.detach(), name)
            for values, name in zip(fused, ("weight", "bias"), strict=True)
        ]
        for user in list(node.users):
            _replace(module, user, x.target, (image, *made, *rest[1:]), like=x)
        return
    scale = torch.rsqrt(variance + epsilon) * (1.0 if weight is None else weight)
    offset = -mean * scale + (0.0 if bias is None else bias)
    rank, channels = node.meta["val"][0].ndim, len(scale)

    def buffer(name: str, values: Tensor) -> Node:
        return add_buffer(module, node, values, name)

    for user in list(node.users):
        if x.target is aten.linear.default and rank == 2 and len(x.users) == 1 and arguments(x)[1].op == "get_attr":
            image, matrix, *rest = arguments(x)
            before = parameter(module, rest[0]) if rest and rest[0] is not None else torch.zeros(channels)
            matrix = buffer("weight", parameter(module, matrix) * scale[:, None])
            _replace(module, user, aten.linear.default, (image, matrix, buffer("bias", before * scale + offset)))
        elif rank == 4:
            kernel = buffer("weight", scale.reshape(channels, 1, 1, 1))
            geometry = ([1, 1], [0, 0], [1, 1], channels)
            _replace(module, user, aten.conv2d.default, (x, kernel, buffer("bias", offset), *geometry))
        else:
            shape = (1, channels, *(1,) * (rank - 2))
            with module.graph.inserting_before(user):
                product = module.graph.call_function(aten.mul.Tensor, (x, buffer("weight", scale.reshape(shape))))
            product.meta = dict(user.meta)
            _replace(module, user, aten.add.Tensor, (product, buffer("bias", offset.reshape(shape))))


def _computed_batch_norm(module: GraphModule, node: Node) -> None:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias, of which some are computed from inputs."""
    x, weight, bias, mean, variance, _momentum, epsilon = arguments(node)
    if not isinstance(mean, Node) or not isinstance(variance, Node) or not _only_first(node):
        return
    result, made = node.meta["val"][0], partial(add_call, module, node)

    def spread(one: Node) -> Node:
        return made(aten.reshape.default, one, [1, -1, *(1,) * (result.ndim - 2)])

    scale = made(aten.rsqrt.default, made(aten.add.Tensor, variance, epsilon))
    scale = scale if weight is None else made(aten.mul.Tensor, scale, weight)
    normal = made(aten.mul.Tensor, made(aten.sub.Tensor, x, spread(mean)), spread(scale))
    normal = normal if bias is None else made(aten.add.Tensor, normal, spread(bias))
    for user in list(node.users):
        user.replace_all_uses_with(normal)
        module.graph.erase_node(user)


def _weight_axis(node: Node) -> int | None:
    """The axis of the output channels in the weights of a convolution; None of any other node."""
    op = op_quantization(node)
    return op.weight_axis if isinstance(op, Weighted) and op.result_axis != -1 else None


def _is_fusible(node: Node) -> bool:
    """Whether a batch norm behind a node is a part of it: a convolution by parameters that nothing else reads, but no
    transposed one in groups."""
    axis = _weight_axis(node)
    if axis is None or len(node.users) > 1:
        return False
    if any(isinstance(one, Node) and one.op != "get_attr" for one in arguments(node)[1:3]):
        return False
    return axis == 0 or len(arguments(node)) <= 6 or arguments(node)[6] == 1


def _transposed(node: Node) -> Node | None:
    """The parameter that a transposition takes."""
    source = arguments(node)[0] if node.target in TRANSPOSES else None
    return source if isinstance(source, Node) and source.op == "get_attr" else None


def _replace(module: GraphModule, node: Node, target: Any, args: tuple, like: Node | None = None) -> None:
    """Exchange a node for another one, which stands for the same line and module, or for those of `like`."""
    with module.graph.inserting_before(node):
        raised = module.graph.call_function(target, args)
    raised.meta = dict((like or node).meta)
    node.replace_all_uses_with(raised)
    module.graph.erase_node(node)


_REWRITES: dict[Any, Callable[[GraphModule, Node], None]] = {
    aten.addmm.default: _addmm,
    aten.mm.default: _mm,
    aten.matmul.default: _mm,
    aten.div.Tensor: _division,
    _BATCH_NORM: _batch_norm,
}
