"""A graph of ONNX as a PyTorch module: PyTorch computes what depends on an input, ONNX's reference all else."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from torch import Tensor, nn

from tosaic.frontend.onnx_scope import Known, Scope, Value, Values, bind, tensor_of, to_tensor
from tosaic.support.errors import ModelError

onnx: Any = import_module("onnx")


class OnnxGraph(nn.Module):
    """A model's graph; each node is a module that has its name, and inputs are keywords: their names as words.

    Raises:
        ModelError: an input is no tensor; when it is called, a node cannot be computed, by its name.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        opsets = {one.domain: one.version for one in model.opset_import}
        functions = {(one.domain, one.name): one for one in model.functions}
        self._scope = Scope(opsets, functions)
        constants = {one.name for one in model.graph.initializer}
        self.inputs = {_word(value.name): value for value in model.graph.input if value.name not in constants}
        for name, value in self.inputs.items():
            if not value.type.HasField("tensor_type"):
                raise ModelError(f"the input `{name}` is no tensor", hint="sequences and optional values have no form")
        self.outputs = [value.name for value in model.graph.output]
        self._arrays = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
        self._buffers_of = dict[str, str]()
        for name, array in self._arrays.items():
            if array.ndim and array.dtype != np.bool_ and np.isfinite(array.astype(np.float64)).all():
                self._buffers_of[name] = _unique(name, self)
                self.register_buffer(self._buffers_of[name], tensor_of(array))
        self._nodes = list[tuple[Any, str]]()
        for node in model.graph.node:
            name = _unique(node.name or f"{node.op_type}_{node.output[0]}", self)
            self.add_module(name, _OnnxNode(node, self._scope))
            self._nodes.append((node, name))

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        values: Values = {
            name: Known(array, getattr(self, self._buffers_of[name]) if name in self._buffers_of else None)
            for name, array in self._arrays.items()
        }
        values |= {self.inputs[name].name: x for name, x in inputs.items()}
        self._scope.computed.nodes = 0
        for node, name in self._nodes:
            outer = {read: values[read] for read in _reads(node) if read in values}
            bind(values, node.output, self.get_submodule(name)(outer))
        return {name: to_tensor(values[name]) for name in self.outputs}


class _OnnxNode(nn.Module):
    def __init__(self, node: Any, scope: Scope) -> None:
        super().__init__()
        self._node, self._scope = node, scope

    def forward(self, values: Values) -> Sequence[Value]:
        return self._scope.results(self._node, values)


def _reads(node: Any) -> set[str]:
    """What a node and the graphs inside of it read by name."""
    graphs = [one.g for one in node.attribute if one.HasField("g")]
    inside = {name for graph in graphs for inner in graph.node for name in _reads(inner)}
    results = {value.name for graph in graphs for value in graph.output}
    return {*node.input, *inside, *results}


def _word(text: str) -> str:
    """A text as a name of Python's."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"value_{name}"


def _unique(text: str, module: nn.Module) -> str:
    """A name for a part of a module, made of a text."""
    name = _word(text).strip("_")
    number, found = 1, name
    while hasattr(module, found):
        number, found = number + 1, f"{name}_{number}"
    return found
