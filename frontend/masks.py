"""Masks of attention that an integer scale can hold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

aten = torch.ops.aten

MASKED = -1e4
"""What stands for -inf, and for other numbers that no score comes near: kind to an integer scale."""

_SOFTMAX = {aten.softmax.int, aten._softmax.default}
_FILLING = {aten.masked_fill.Scalar, aten.pad.default, aten.constant_pad_nd.default, aten.where.ScalarOther,
            aten.where.ScalarSelf, aten.where.Scalar}  # fmt: skip
_ON_THE_WAY = {aten.add.Tensor, aten.where.self, aten.expand.default, aten.unsqueeze.default, aten.squeeze.dim,
               aten.view.default, aten.reshape.default, aten.permute.default, aten.clone.default, aten.slice.Tensor,
               aten.cat.default, *_FILLING}  # fmt: skip


def bound_masks(module: GraphModule) -> None:
    """Raise numbers below `MASKED` (-inf, the least float, -1e9), in a constant or filled in, to it, in place.

    That is done where all that reads them ends in a softmax.
    """
    for node in module.graph.nodes:
        if node.target in _FILLING and any(map(_masks, node.args)) and ends_in_softmax(node):
            node.args = tuple(MASKED if _masks(argument) else argument for argument in node.args)
        if node.op != "get_attr":
            continue
        owner, _, name = str(node.target).rpartition(".")
        holder = module.get_submodule(owner)
        values: Any = getattr(holder, name)
        if (
            isinstance(values, Tensor)
            and values.is_floating_point()
            and bool((values < MASKED).any())
            and ends_in_softmax(node)
        ):
            setattr(holder, name, values.clamp(min=MASKED))


def _masks(argument: object) -> bool:
    return isinstance(argument, (int, float)) and argument < MASKED


def ends_in_softmax(node: Node) -> bool:
    """Whether what a node gives is added to scores, or selected among them, and nothing else."""
    readers = [user for user in node.users if user.target is not aten._assert_tensor_metadata.default]
    return bool(readers) and all(
        user.target in _SOFTMAX or (user.target in _ON_THE_WAY and ends_in_softmax(user)) for user in readers
    )
