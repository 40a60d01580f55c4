"""Inputs and results as the user has them: images in planes of channels or in pixels, and single numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.fx import Node

from tosaic.frontend.methods import ENTER

_TO_PLANES, _TO_PIXELS = (0, 3, 1, 2), (0, 2, 3, 1)


def take_channels_last(program: ExportedProgram, placeholders: Sequence[Node]) -> None:
    """Let each input of four axes come as (batch, height, width, channels), in place; the program permutes it first."""
    for node in placeholders:
        if node.meta["val"].ndim == len(_TO_PLANES):
            pixels = node.meta["val"].permute(_TO_PIXELS).contiguous()
            _take(program, node, pixels, torch.ops.aten.permute.default, list(_TO_PLANES))
    program.graph_module.recompile()


def give_channels_last(program: ExportedProgram) -> None:
    """Let each result of four axes go out as (batch, height, width, channels), in place; an op permutes it last."""
    output = program.graph.output_node()
    (results,) = output.args
    assert isinstance(results, tuple | list)
    given = list(results)
    for place, spec in enumerate(program.graph_signature.output_specs):
        planes = given[place]
        if spec.kind is not OutputKind.USER_OUTPUT or not isinstance(planes, Node):
            continue
        if planes.meta["val"].ndim != len(_TO_PLANES) or planes.target is ENTER:
            continue
        with program.graph.inserting_before(output):
            pixels = program.graph.call_function(torch.ops.aten.permute.default, (planes, list(_TO_PIXELS)))
        pixels.meta = {**planes.meta, "val": planes.meta["val"].permute(_TO_PIXELS)}
        given[place], spec.arg = pixels, TensorArgument(name=pixels.name)
    output.args = (tuple(given),)
    program.graph_module.recompile()


def take_scalars(program: ExportedProgram, placeholders: Sequence[Node]) -> None:
    """Let each input without axes come as [1], in place; firmware has no other tensors of one number."""
    for node in placeholders:
        if not node.meta["val"].ndim:
            _take(program, node, node.meta["val"].reshape(1), torch.ops.aten.view.default, [])
    args, kwargs = program.example_inputs or ((), {})
    program.example_inputs = with_axes(args), kwargs
    program.graph_module.recompile()


def _take(program: ExportedProgram, node: Node, value: Tensor, target: OpOverload, argument: list[int]) -> None:
    """Let an input come as `value`; what read it reads an op's result on it."""
    readers = list(node.users)
    first = next(one for one in program.graph.nodes if one.op != "placeholder")
    with program.graph.inserting_before(first):
        given = program.graph.call_function(target, (node, argument))
    given.meta = dict(node.meta)
    for reader in readers:
        reader.replace_input_with(node, given)
    node.meta["val"] = value


def channels_last(batch: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A batch as such a program takes it."""
    return tuple(x.permute(_TO_PIXELS).contiguous() if x.ndim == len(_TO_PIXELS) else x for x in batch)


def with_axes(batch: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A batch whose tensors of one number have an axis."""
    return tuple(x if x.ndim else x.reshape(1) for x in batch)
