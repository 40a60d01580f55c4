"""What a serialized TOSA module takes, gives and consists of, as a compiler that reads it sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

_T = TypeVar("_T")


class FlatbufferGraph:
    """The main block of a serialized TOSA module.

    Args:
        flatbuffer: what `serialize` returns.

    Attributes:
        op_names: TOSA's name of each op, constants included.
        inputs, outputs: the shape and numpy's dtype of each argument and result.
    """

    def __init__(self, flatbuffer: bytes) -> None:
        from tosa.DType import DType
        from tosa.Op import Op
        from tosa.TosaGraph import TosaGraph

        names = {value: name for name, value in vars(Op).items() if isinstance(value, int)}
        types = {value: name for name, value in vars(DType).items() if isinstance(value, int)}
        (region,) = _elements(TosaGraph.GetRootAs(flatbuffer, 0).Regions, 1)
        (block,) = _elements(region.Blocks, 1)
        tensors: dict[str | bytes | None, tuple[tuple[int, ...], str]] = {
            tensor.Name(): (tuple(_elements(tensor.Shape, tensor.ShapeLength())), _numpy_name(types[tensor.Type()]))
            for tensor in _elements(block.Tensors, block.TensorsLength())
        }
        self.op_names = [names[op.Op()] for op in _elements(block.Operators, block.OperatorsLength())]
        self.inputs = [tensors[name] for name in _elements(block.Inputs, block.InputsLength())]
        self.outputs = [tensors[name] for name in _elements(block.Outputs, block.OutputsLength())]


def _elements(element: Callable[[int], _T | None], length: int) -> list[_T]:
    """The elements of a flatbuffer's vector; its accessor answers None where the vector is missing."""
    return [found for index in range(length) if (found := element(index)) is not None]


def _numpy_name(tosa_type: str) -> str:
    wide = {"BOOL": "bool", "INT4": "int8", "INT48": "int64", "FP32": "float32", "FP16": "float16"}
    name = wide.get(tosa_type, tosa_type.lower())
    return np.dtype(name).name if name in wide.values() or name.startswith("int") else name
