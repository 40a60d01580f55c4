"""An `.onnx` file as a PyTorch module, which reads it by the package onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tosaic.frontend.onnx_ops.types import torch_dtype
from tosaic.support.errors import ModelError, reason

_SEED = 0


def read_onnx(path: Path) -> Any:
    """The graph of a file, as a module.

    Raises:
        ModelError: the file is missing or damaged, what reads it is not installed, or an input is no tensor.
    """
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    try:
        onnx, graphs = import_module("onnx"), import_module("tosaic.frontend.onnx_graph")
    except ImportError as error:
        raise ModelError(f"{path} needs an importer", why=reason(error), hint="pip install tosaic[onnx]") from None
    try:
        return graphs.OnnxGraph(onnx.load(path))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{path} cannot be imported", why=reason(error)) from error


def example_inputs(graph: Any, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Random inputs of a graph; a name is the file's, as a word of Python.

    Args:
        shapes: of inputs with axes that the file leaves open; a first axis that it leaves open is 1.

    Raises:
        ModelError: an input has no dtype or shape that can be compiled.
    """
    draw = torch.Generator().manual_seed(_SEED)
    return {name: _example(name, value, shapes.get(name), draw) for name, value in graph.inputs.items()}


def _example(name: str, value: Any, dims: Sequence[int] | None, draw: torch.Generator) -> Tensor:
    kind = value.type.tensor_type
    given = [dim.dim_value for dim in kind.shape.dim]
    shape = list(dims) if dims else [1 if axis == 0 and not size else size for axis, size in enumerate(given)]
    if 0 in shape:
        raise ModelError(f"the input `{name}` has a dynamic shape {given}", hint=f"fix it: --shape {name}=1,...")
    dtype = torch_dtype(kind.elem_type)
    return torch.randn(shape, generator=draw).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)
