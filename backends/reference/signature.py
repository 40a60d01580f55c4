"""What a TOSA flatbuffer takes and gives."""

from __future__ import annotations

import struct
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

from tosaic.support.errors import BackendError

_DTYPES = {1: "bool", 3: "int8", 4: "int16", 5: "int32", 7: "float32"}
_graph: Any = import_module("tosa.TosaGraph").TosaGraph


class TosaPort(NamedTuple):
    """An input or output; `dtype` is numpy's."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return prod(self.shape)


def signature(flatbuffer: bytes) -> tuple[list[TosaPort], list[TosaPort]]:
    """The inputs and outputs of the first block of a TOSA flatbuffer.

    Raises:
        BackendError: it is none, or a type is not one of bool, int8, int16, int32 and float32.
    """
    try:
        if not _graph.TosaGraphBufferHasIdentifier(flatbuffer, 0):
            raise BackendError("it is no TOSA flatbuffer")
        block = _graph.GetRootAs(flatbuffer, 0).Regions(0).Blocks(0)
        tensors = {each.Name(): each for each in map(block.Tensors, range(block.TensorsLength()))}
        return (
            [_port(tensors[block.Inputs(i)]) for i in range(block.InputsLength())],
            [_port(tensors[block.Outputs(i)]) for i in range(block.OutputsLength())],
        )
    except (struct.error, ValueError, KeyError, AttributeError, TypeError) as error:
        raise BackendError(f"it is damaged, or has a type that cannot be read: {error}") from error


def _port(tensor: Any) -> TosaPort:
    shape = tuple(tensor.ShapeAsNumpy().tolist()) if tensor.ShapeLength() else ()
    return TosaPort(shape, _DTYPES[tensor.Type()])
