"""LiteRT's reference kernels: what a `.tflite` file computes, whole or one op of it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tosaic.support.errors import Error

Arrays = list[np.ndarray]


class LiteRt:
    """A file of LiteRT's.

    Args:
        path: a `.tflite` file.

    Raises:
        Error: LiteRT is not installed, or the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._litert: Any = import_module("ai_edge_litert.interpreter")
        except ImportError:
            raise Error("LiteRT is not installed", hint="pip install tosaic[litert]") from None
        try:
            self._path, self._content = path, path.read_bytes()
        except OSError as error:
            raise Error(f"cannot read `{path}`", why=str(error.strerror)) from error
        self._steps: dict[int, Any] = {}

    def outputs(self, inputs: Sequence[np.ndarray]) -> Arrays:
        """The outputs of the file, in its order, for inputs in its order.

        Raises:
            Error: LiteRT does not take the file or the inputs.
        """
        return self._run(self._net(-1), inputs)

    def step(self, number: int, inputs: Sequence[np.ndarray]) -> Arrays:
        """The results of the op of that number alone, for its operands that are no constants and no variables.

        Raises:
            Error: LiteRT does not take the op or the inputs.
        """
        return self._run(self._net(number), inputs)

    def _net(self, number: int) -> Any:
        if number not in self._steps:
            content = self._content if number < 0 else _one_op(self._content, number)
            kernels = self._litert.OpResolverType.BUILTIN_REF
            try:
                net = self._litert.Interpreter(model_content=content, experimental_op_resolver_type=kernels)
                net.allocate_tensors()
            except (ValueError, RuntimeError) as error:
                raise Error(f"LiteRT does not take `{self._path}`", why=str(error)) from error
            self._steps[number] = net
        return self._steps[number]

    def _run(self, net: Any, inputs: Sequence[np.ndarray]) -> Arrays:
        try:
            for place, array in zip(net.get_input_details(), inputs, strict=True):
                net.set_tensor(place["index"], array)
            net.invoke()
        except (ValueError, RuntimeError) as error:
            raise Error(f"LiteRT does not run `{self._path}`", why=str(error)) from error
        return [net.get_tensor(place["index"]).copy() for place in net.get_output_details()]


def _is_given(model: Any, tensor: Any) -> bool:
    return not tensor.isVariable and model.buffers[tensor.buffer].data is None


def _one_op(content: bytes, number: int) -> bytes:
    """A file with one op of another file."""
    schema: Any = import_module("ai_edge_litert.schema_py_generated")
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    op = graph.operators[number]
    graph.operators = [op]
    graph.inputs = [value for value in op.inputs if value >= 0 and _is_given(model, graph.tensors[value])]
    graph.outputs = op.outputs
    model.metadata, model.signatureDefs = None, None
    builder: Any = import_module("flatbuffers").Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
