"""The types of ONNX's tensors that PyTorch has too."""

from __future__ import annotations

from importlib import import_module

import torch

from tosaic.support.errors import ModelError

_DTYPES = {  # by the numbers of TensorProto.DataType
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}


def torch_dtype(number: int) -> torch.dtype:
    """The dtype that a number of `TensorProto.DataType` stands for.

    Raises:
        ModelError: tosaic computes with no such elements: strings, complex numbers, floats of 8 bits or less.
    """
    if number not in _DTYPES:
        name = import_module("onnx").TensorProto.DataType.Name(number)
        raise ModelError(f"a tensor has elements of type {name}, which no target computes with")
    return _DTYPES[number]
