"""An `.onnx` file as a PyTorch module, which reads it by the package onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tosaic.frontend.python_file import reason
from tosaic.support.errors import ModelError

_SEED = 0


def read_onnx(path: Path, shapes: Mapping[str, Sequence[int]]) -> tuple[nn.Module, dict[str, Tensor]]:
    """The module of a graph, and random example inputs by name.

    Args:
        shapes: of inputs with axes that the file leaves open; a first axis that it leaves open is 1.

    Raises:
        ModelError: the file is missing or damaged, what reads it is not installed, or it holds an op that is unknown.
    """
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    try:
        onnx, graphs = import_module("onnx"), import_module("tosaic.frontend.onnx_graph")
    except ImportError as error:
        raise ModelError(f"{path} needs an importer", why=reason(error), hint="pip install tosaic[onnx]") from None
    try:
        model = onnx.load(path)
        module = graphs.OnnxGraph(model)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{path} cannot be imported", why=reason(error)) from error
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    draw = torch.Generator().manual_seed(_SEED)
    examples = {value.name: _example(value, shapes.get(value.name), draw) for value in inputs}
    return module, examples


def _example(value: Any, dims: Sequence[int] | None, draw: torch.Generator) -> Tensor:
    if not value.type.HasField("tensor_type"):
        raise ModelError(
            f"the input `{value.name}` is no tensor", hint="sequences and optional values have no form here"
        )
    given = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    shape = list(dims) if dims else [1 if axis == 0 and not size else size for axis, size in enumerate(given)]
    if 0 in shape:
        raise ModelError(
            f"the input `{value.name}` has a dynamic shape {given}", hint=f"fix it: --shape {value.name}=1,..."
        )
    to_dtype = import_module("onnx.helper").tensor_dtype_to_np_dtype
    dtype = getattr(torch, str(to_dtype(value.type.tensor_type.elem_type)))
    return torch.randn(shape, generator=draw).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)
