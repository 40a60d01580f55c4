"""Models in half precision as the same in float32: no target computes with less."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

_HALVES = (torch.float16, torch.bfloat16)


def is_half(program: ExportedProgram) -> bool:
    """Whether a program computes with float16 or bfloat16 anywhere."""
    values = (leaf for node in program.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val")))
    return any(isinstance(value, Tensor) and value.dtype in _HALVES for value in values)


def widened(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The module of a program with its weights and the dtypes that it names in float32, in place."""
    for node in module.graph.nodes:
        node.args = map_aggregate(node.args, _wide)
        node.kwargs = map_aggregate(node.kwargs, _wide)
    module.recompile()
    for tensor in [*module.buffers(), *module.parameters()]:
        tensor.data = widened_tensor(tensor.data)
    for name, value in vars(module).items():
        setattr(module, name, widened_tensor(value))
    return module


def widened_tensor(value: Any) -> Any:
    """A tensor in half precision as float32; anything else as it is."""
    return value.float() if isinstance(value, Tensor) and value.dtype in _HALVES else value


def _wide(argument: Any) -> Any:
    return torch.float32 if isinstance(argument, torch.dtype) and argument in _HALVES else argument
