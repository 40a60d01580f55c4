"""Inputs of uint8: those cast to floats are floats from 0 to 255 for all that follows, those dequantized are int8."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from tosaic.frontend.canonical import DEQUANTIZE, arguments
from tosaic.frontend.interface import Batch

aten = torch.ops.aten
_ASSERTED = aten._assert_tensor_metadata.default
_CASTS = {aten.to.dtype, aten._to_copy.default}
_PROMOTING = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.rsub.Scalar}
_MOVING = {aten.permute.default, aten.view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim,
           aten.slice.Tensor, aten.transpose.int, aten.flip.default, aten.select.int}  # fmt: skip


def take_bytes(program: ExportedProgram, placeholders: Sequence[Node]) -> list[int]:
    """The numbers of the inputs of uint8 that are read as floats alone: the program takes them as float32, in place."""
    found = []
    for number, node in enumerate(placeholders):
        if node.meta["val"].dtype == torch.uint8 and (moved := _read_as_floats(node)):
            found.append(number)
            for one in moved:
                one.meta["val"] = one.meta["val"].float()
                for user in list(one.users):
                    if user.target in _CASTS:
                        user.replace_all_uses_with(one)
                    if user.target in _CASTS or user.target == _ASSERTED:
                        program.graph.erase_node(user)
    args, kwargs = program.example_inputs or ((), {})
    program.example_inputs = as_floats(tuple(args), found), kwargs
    program.graph_module.recompile()
    return found


def as_floats(batch: Batch, numbers: Sequence[int]) -> Batch:
    """A batch as such a program takes it."""
    return tuple(x.float() if number in numbers else x for number, x in enumerate(batch))


def take_stored(program: ExportedProgram, placeholders: Sequence[Node]) -> list[int]:
    """The numbers of the inputs of uint8 that are dequantized alone; in place, the program takes int8, 128 less."""
    found = []
    for number, node in enumerate(placeholders):
        readers = [user for user in node.users if user.target != _ASSERTED]
        if node.meta["val"].dtype != torch.uint8 or not readers or any(one.target != DEQUANTIZE[0] for one in readers):
            continue
        found.append(number)
        node.meta["val"] = node.meta["val"].to(torch.int8)
        for user in list(node.users):
            if user.target == _ASSERTED:
                program.graph.erase_node(user)
                continue
            x, scale, zero, low, high, _ = arguments(user)
            user.args = (x, scale, zero - 128, low - 128, high - 128, torch.int8)
    args, kwargs = program.example_inputs or ((), {})
    program.example_inputs = as_signed(tuple(args), found), kwargs
    program.graph_module.recompile()
    return found


def as_signed(batch: Batch, numbers: Sequence[int]) -> Batch:
    """A batch as such a program takes it."""
    return tuple((x.int() - 128).to(torch.int8) if number in numbers else x for number, x in enumerate(batch))


def _read_as_floats(source: Node) -> list[Node]:
    """The node and what only moves it, where all else that reads these makes floats of them; else nothing."""
    moved = [source]
    for node in moved:
        for user in node.users:
            value = user.meta.get("val")
            if user.target in _MOVING:
                moved.append(user)
            elif user.target != _ASSERTED and not (
                user.target in _CASTS | _PROMOTING and isinstance(value, Tensor) and value.dtype == torch.float32
            ):
                return []
    return moved
