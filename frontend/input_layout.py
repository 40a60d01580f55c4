"""Images as the user hands them over: planes of channels, as PyTorch has them, or pixels with their channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

_TO_PLANES, _TO_PIXELS = (0, 3, 1, 2), (0, 2, 3, 1)


def take_channels_last(program: ExportedProgram, placeholders: Sequence[Node]) -> None:
    """Let each input of four axes come as (batch, height, width, channels), in place; the program permutes it first."""
    images = [node for node in placeholders if node.meta["val"].ndim == len(_TO_PLANES)]
    first = next(node for node in program.graph.nodes if node.op != "placeholder")
    with program.graph.inserting_before(first):
        for node in images:
            readers = list(node.users)
            planes = program.graph.call_function(torch.ops.aten.permute.default, (node, list(_TO_PLANES)))
            planes.meta = {**node.meta, "val": node.meta["val"]}
            for reader in readers:
                reader.replace_input_with(node, planes)
            node.meta["val"] = node.meta["val"].permute(_TO_PIXELS).contiguous()
    program.graph_module.recompile()


def channels_last(batch: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A batch as such a program takes it."""
    return tuple(x.permute(_TO_PIXELS).contiguous() if x.ndim == len(_TO_PIXELS) else x for x in batch)
