"""RMSNorm (Zhang and Sennrich 2019) as one op, where it is written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from tosaic.frontend.canonical import arguments

aten = torch.ops.aten
RMS_NORM = aten.rms_norm.default


class _Written(NamedTuple):
    """x * rsqrt(mean(x^2) + epsilon) over the last axis, and the node that gives it."""

    result: Node
    x: Node
    epsilon: float


def raise_rms_norms(module: GraphModule) -> None:
    """x * rsqrt(mean(x^2) + epsilon), and a product of it with a vector, become `rms_norm`, in place.

    As one op its squares and its root are no tensors of 8 bits.
    """
    for node in list(module.graph.nodes):
        found = _written(node) if node.target is aten.mul.Tensor else None
        if found is None:
            continue
        size = found.x.meta["val"].shape[-1]
        last, weight = found.result, None
        scaled = next(iter(last.users)) if len(last.users) == 1 else None
        if scaled is not None and (vector := _vector(scaled, last, size)) is not None:
            last, weight = scaled, vector
        with module.graph.inserting_before(last):
            made = module.graph.call_function(RMS_NORM, (found.x, [size], weight, found.epsilon))
        made.meta = dict(last.meta)
        last.replace_all_uses_with(made)
    module.graph.eliminate_dead_code()


def _vector(product: Node, normal: Node, size: int) -> Node | None:
    """The constant of one number a channel that a product takes beside `normal`."""
    if product.target is not aten.mul.Tensor or product.kwargs:
        return None
    others = [one for one in arguments(product) if one is not normal]
    if len(others) != 1 or not isinstance(others[0], Node) or others[0].op != "get_attr":
        return None
    return others[0] if tuple(others[0].meta["val"].shape) == (size,) else None


def _written(product: Node) -> _Written | None:
    """A product of x and the reciprocal of its root mean square."""
    if product.kwargs or len(arguments(product)) != 2:
        return None
    for x, root in (arguments(product), arguments(product)[::-1]):
        if isinstance(x, Node) and isinstance(root, Node) and (epsilon := _root_of(root, x)) is not None:
            return _Written(product, x, epsilon)
    return None


def _root_of(root: Node, x: Node) -> float | None:
    """The epsilon of rsqrt(mean(x^2) + epsilon)."""
    total = _operand(root, aten.rsqrt.default) or _power(root, -0.5)
    if total is None:  # 1 / sqrt, which division has become
        inner = _operand(root, aten.reciprocal.default)
        total = None if inner is None else _operand(inner, aten.sqrt.default) or _power(inner, 0.5)
    if total is None or total.target is not aten.add.Tensor or total.kwargs or len(total.users) > 1:
        return None
    nodes, numbers = _parted(arguments(total))
    if len(nodes) != 1 or len(numbers) != 1 or not _is_mean_of_squares(nodes[0], x):
        return None
    return numbers[0] if numbers[0] > 0 else None


def _is_mean_of_squares(mean: Node, x: Node) -> bool:
    if mean.target is not aten.mean.dim or mean.kwargs or len(mean.users) > 1:
        return False
    squares, axes, *kept = arguments(mean)
    last = x.meta["val"].ndim - 1
    if kept != [True] or len(axes) != 1 or axes[0] not in (-1, last) or len(squares.users) > 1:
        return False
    by_itself = squares.target is aten.mul.Tensor and tuple(squares.args) == (x, x)
    return by_itself or _power(squares, 2) is x or _operand(squares, aten.square.default) is x


def _operand(node: Node, target: Any) -> Node | None:
    """The operand of an op that nothing but one reader needs."""
    if node.target is not target or len(node.users) > 1 or not isinstance(node.args[0], Node):
        return None
    return node.args[0]


def _power(node: Node, exponent: float) -> Node | None:
    found = _operand(node, aten.pow.Tensor_Scalar)
    return found if found is not None and node.args[1] == exponent else None


def _parted(args: Sequence[Any]) -> tuple[list[Node], list[float]]:
    """The operands that are nodes, and those that are numbers."""
    nodes = [one for one in args if isinstance(one, Node)]
    return nodes, [float(one) for one in args if isinstance(one, int | float)]
