"""A file that Vela has compiled: a `.tflite` with its regions and the ops that are left to the core, or a `.pte`."""

from __future__ import annotations

import struct
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tosaic.backends.ethos_u.executorch_file import is_executorch, read_executorch
from tosaic.backends.ethos_u.file_region import file_region
from tosaic.backends.npu import CompiledFile, CompiledStep, FileValue, NpuPort, NpuRegion
from tosaic.support.errors import BackendError

_IDENTIFIER = b"TFL3"
_CUSTOM_CODE = b"ethos-u"
_OFFSETS = b"OfflineMemoryAllocation"
_FIRST_OFFSET = 3  # behind version, subgraph and count
_DTYPES = {0: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"}
_model: Any = import_module("ethosu.vela.tflite.Model").Model
_builtin: Any = import_module("ethosu.vela.tflite.BuiltinOperator").BuiltinOperator
_OPS = {number: name for name, number in vars(_builtin).items() if isinstance(number, int)}
_SCRATCH = 1  # the memory region of working memory, where inputs and outputs lie as well


def read_compiled_file(path: Path) -> CompiledFile | None:
    """The file at `path`; None where nothing of it is a region of Vela's.

    Raises:
        BackendError: it is damaged, or has what Vela does not write.
    """
    content = path.read_bytes()
    try:
        if is_executorch(content):
            return read_executorch(content)
        file = _File(content) if content[4:8] == _IDENTIFIER else None
        return file.read() if file is not None and file.has_regions else None
    except (struct.error, ValueError, IndexError, KeyError, AttributeError, TypeError, ArithmeticError) as error:
        raise BackendError(f"cannot read `{path}`", why=f"it is damaged, or not as Vela writes it: {error}") from error


class _File:
    def __init__(self, content: bytes) -> None:
        self._model = _model.GetRootAsModel(content, 0)
        self._graph = self._model.Subgraphs(0)
        self._offsets = self._planned()

    @property
    def has_regions(self) -> bool:
        codes = (self._model.OperatorCodes(i) for i in range(self._model.OperatorCodesLength()))
        return any(code.CustomCode() == _CUSTOM_CODE for code in codes)

    def read(self) -> CompiledFile:
        if self._model.SubgraphsLength() != 1:
            raise ValueError("it has several subgraphs")
        steps = tuple(self._step(number) for number in range(self._graph.OperatorsLength()))
        inputs, outputs = self._graph.InputsAsNumpy().tolist(), self._graph.OutputsAsNumpy().tolist()
        used = {*inputs, *outputs, *(value for step in steps for value in (*step.inputs, *step.outputs))}
        return CompiledFile({value: self._value(value) for value in sorted(used)}, tuple(inputs), tuple(outputs), steps)

    def _step(self, number: int) -> CompiledStep:
        op = self._graph.Operators(number)
        code = self._model.OperatorCodes(op.OpcodeIndex())
        operands, results = op.InputsAsNumpy().tolist(), op.OutputsAsNumpy().tolist()
        if code.CustomCode() == _CUSTOM_CODE:
            return CompiledStep(number, "ethos-u", tuple(operands[4:]), tuple(results), self._region(op))
        name = _OPS[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        inputs = tuple(value for value in operands if value >= 0 and not self._is_kept(value))
        return CompiledStep(number, name, inputs, tuple(results), None)

    def _region(self, op: Any) -> NpuRegion:
        """The operands are command stream, constants, working memory, fast working memory, then the inputs."""
        commands, constants, scratch, fast, *inputs = op.InputsAsNumpy().tolist()
        stream, base = self._content(commands), self._offsets[scratch]
        return file_region(
            stream,
            self._content(constants),
            _bytes(self._value(scratch)),
            _bytes(self._value(fast)) if fast != scratch else 0,
            (self._port(value, base) for value in inputs),
            (self._port(value, base) for value in op.OutputsAsNumpy().tolist()),
        )

    def _port(self, value: int, base: int) -> NpuPort:
        tensor = self._value(value)
        return NpuPort(_SCRATCH, self._offsets[value] - base, _bytes(tensor), tensor.shape, tensor.dtype)

    def _value(self, value: int) -> FileValue:
        tensor = self._graph.Tensors(value)
        shape = tuple(tensor.ShapeAsNumpy().tolist()) if tensor.ShapeLength() else ()
        return FileValue((tensor.Name() or b"").decode(), shape, _DTYPES[tensor.Type()])

    def _content(self, value: int) -> bytes:
        buffer = self._model.Buffers(self._graph.Tensors(value).Buffer())
        return buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""

    def _is_kept(self, value: int) -> bool:
        """Whether a tensor is a constant, or a variable that its op keeps."""
        return bool(self._graph.Tensors(value).IsVariable() or self._content(value))

    def _planned(self) -> list[int]:
        """Where each tensor lies in the arena of the whole file."""
        for i in range(self._model.MetadataLength()):
            entry = self._model.Metadata(i)
            if entry.Name() == _OFFSETS:
                words = np.frombuffer(self._model.Buffers(entry.Buffer()).DataAsNumpy().tobytes(), "<i4")
                return words[_FIRST_OFFSET:].tolist()
        return []


def _bytes(value: FileValue) -> int:
    return int(np.prod(value.shape, dtype=np.int64)) * np.dtype(value.dtype).itemsize
