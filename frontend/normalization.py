"""What a layer norm or RMSNorm multiplies and adds becomes a part of the linear layers that read it."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from tosaic.frontend.canonical import arguments, complete_arguments
from tosaic.frontend.grouped_weights import marked_group
from tosaic.frontend.parameters import add_buffer, parameter

aten = torch.ops.aten


def fold_affines(module: GraphModule) -> None:
    """linear(normal * w + b) -> linear(normal) with weights W w and bias W b + c, in place.

    It is done where nothing but linear layers with weights of their own reads a layer norm or RMSNorm over one axis.
    """
    for node in list(module.graph.nodes):
        if node.target not in (aten.layer_norm.default, aten.rms_norm.default):
            continue
        centered = node.target is aten.layer_norm.default
        x, shape, weight, *rest = complete_arguments(node)
        bias, *rest = rest if centered else (None, *rest)
        readers = list(node.users)
        if len(shape) != 1 or weight is None or not all(_takes_over(reader, node) for reader in readers):
            continue
        if any(map(marked_group, readers)) and not parameter(module, weight).eq(1).all():  # whose grid that is not
            continue
        for reader in readers:
            _take_over(module, reader, weight, bias)
        node.args, node.kwargs = (x, shape, None, *((None,) if centered else ()), *rest), {}


def _takes_over(reader: Node, normal: Node) -> bool:
    if reader.target is not aten.linear.default or reader.all_input_nodes.count(normal) != 1:
        return False
    image, matrix, *_ = arguments(reader)
    return image is normal and matrix.op == "get_attr" and len(matrix.users) == 1


def _take_over(module: GraphModule, linear: Node, weight: Node, bias: Node | None) -> None:
    image, matrix, offset = complete_arguments(linear)
    given = parameter(module, matrix)
    columns = add_buffer(module, linear, given * parameter(module, weight), "weight")
    if bias is not None:
        added = given @ parameter(module, bias)
        before = 0.0 if offset is None else parameter(module, offset)
        offset = add_buffer(module, linear, before + added, "bias")
    linear.args = (image, columns, offset)
