"""What a `.tflite` says of itself, and what Arm's converter makes of it, which crashes on some: for a child process."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

import numpy as np

from tosaic.frontend.tflite_grafts import graft
from tosaic.frontend.tflite_ops.registry import Call, FileTensor, rule_of
from tosaic.support.errors import ModelError
from tosaic.support.names import word
from tosaic.support.quantization import TO_SIGNED, signed

_IDENTIFIER = b"TFL3"
_CUSTOM, _VELA = 32, "ethos-u"
_NOT_LEGAL = re.compile(r"(?:failed to legalize operation |error: )'tfl\.(\w+)'")
_LEFT = re.compile(r'= "?tfl\.(\w+)"?\(')
_SAID = 2**16  # bytes
_KINDS = {0: "f32", 1: "f16", 2: "i32", 3: "ui8", 4: "i64", 6: "i1", 7: "i16", 9: "i8"}  # TensorType of schema.fbs
_DTYPES = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "ui8": "u1", "i64": "<i8", "i1": "?", "i16": "<i2", "i8": "i1"}
_QUANTIZED = ("i8", "ui8", "i16")


@dataclass(frozen=True)
class Edge:
    """An input or a result.

    Args:
        name: a word: what the file's signature calls it, or its tensor where there is none.
        storage, scale, zero_point: where it is quantized, with the element type of its integers; else empty, 0 and 0.
    """

    name: str
    storage: str
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Converted:
    """Args:
    inputs, outputs: as the function in `text` takes and gives them.
    calls: those ops that are custom ops of ours in it, by their number.
    text: MLIR.
    """

    inputs: Sequence[Edge]
    outputs: Sequence[Edge]
    calls: Mapping[int, Call]
    text: str


def convert(path: str, shapes: Mapping[str, Sequence[int]]) -> Converted:
    """Read a file, fix its shapes, and convert it.

    Args:
        shapes: of inputs by name; other sizes that the file leaves open are what it is stored with, 1 for the batch.

    Raises:
        ImportError: the extra `tflite` is not installed.
        ModelError: it is no such file, or holds ops without a meaning in TOSA; the message names them.
    """
    converter = import_module("tosa_converter_for_tflite")
    data = bytearray(Path(path).read_bytes())
    if data[4:8] != _IDENTIFIER:
        raise ModelError(f"{path} is no .tflite file", why="it does not say TFL3 at its byte 4")
    model = import_module("ethosu.vela.tflite.Model").Model.GetRootAs(data)
    _refuse_custom_ops(path, model)
    inputs, outputs = _edges(model, "Inputs"), _edges(model, "Outputs")
    _fix_shapes(model, inputs, shapes)
    calls = {call.number: call for call in _calls(model) if rule_of(call) is not None}
    made = io.BytesIO()
    with tempfile.NamedTemporaryFile(suffix=".tflite") as fixed, _standard_error() as said:
        fixed.write(graft(data, calls) if calls else data)
        fixed.flush()
        try:
            converter.tflite_flatbuffer_to_tosa_mlir(fixed.name, made, converter.TosaConverterOutputFormat.Text)
        except Exception as error:
            raise _refusal(path, str(error), said().replace(fixed.name, path)) from None
    text = made.getvalue().decode()
    if left := dict.fromkeys(_LEFT.findall(text)):
        raise _without_tosa(path, left)
    return Converted(inputs, outputs, calls, text)


def _refuse_custom_ops(path: str, model: Any) -> None:
    """Raise where an op is of no builtin kind."""
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    kinds = [(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), code.CustomCode()) for code in codes]
    custom = [_text(name) for kind, name in kinds if kind == _CUSTOM]
    if _VELA in custom:
        raise ModelError(
            f"{path} has been compiled by Vela already",
            why=f"its op `{_VELA}` is a command stream of one NPU",
            hint="give the file that Vela was given: tosaic calls Vela itself",
        )
    if custom:
        raise ModelError(
            f"{path} holds custom ops: {', '.join(f'`{name}`' for name in dict.fromkeys(custom))}",
            why="what they compute stands in code outside of the file",
            hint="end the model before them, and compute them in your own firmware",
        )


def _refusal(path: str, error: str, said: str) -> ModelError:
    """What the converter could not convert."""
    if ops := dict.fromkeys(_NOT_LEGAL.findall(said)):
        return _without_tosa(path, ops, _first_error(said))
    return ModelError(f"{path} cannot be converted to TOSA", why=_first_error(said) or error)


def _without_tosa(path: str, ops: Iterable[str], why: str = "") -> ModelError:
    """By the names that the file's schema gives ops."""
    names = ", ".join(f"`{op.upper()}`" for op in ops)
    hint = "write the model without them, or export it as .onnx or .pt2"
    return ModelError(f"{path} holds ops that Arm's converter has no TOSA for: {names}", why=why, hint=hint)


def _first_error(said: str) -> str:
    lines = [line.partition("error: ")[2] for line in said.splitlines() if "error: " in line]
    return lines[0][:300] if lines else ""


def _edges(model: Any, kind: str) -> list[Edge]:
    """The inputs or results of the first subgraph."""
    graph = model.Subgraphs(0)
    named = _signature(model, kind)
    edges = []
    for index in getattr(graph, f"{kind}AsNumpy")():
        tensor = graph.Tensors(int(index))
        name = named.get(int(index)) or _text(tensor.Name()).removeprefix("serving_default_").removesuffix(":0")
        kind, (scales, zero_points) = _KINDS.get(tensor.Type(), ""), _quantization(tensor)
        if kind in _QUANTIZED and len(scales) == len(zero_points) == 1 and scales[0] > 0:
            edges.append(Edge(word(name), kind, scales[0], zero_points[0]))
        else:
            edges.append(Edge(word(name), "", 0.0, 0))
    return edges


def _calls(model: Any) -> Iterator[Call]:
    """The ops of the first subgraph, as far as Vela's schema knows them."""
    graph = model.Subgraphs(0)
    for number in range(graph.OperatorsLength()):
        op = graph.Operators(number)
        code = model.OperatorCodes(op.OpcodeIndex())
        name = _names("BuiltinOperator").get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "")
        sources, results, others = (_numbers(op, kind) for kind in ("Inputs", "Outputs", "Intermediates"))
        inputs = tuple(_tensor(model, graph.Tensors(index)) if index >= 0 else None for index in sources)
        outputs, between = (tuple(_tensor(model, graph.Tensors(i)) for i in some) for some in (results, others))
        yield Call(number, name, inputs, outputs, between, _options(op), sources, results)


def _numbers(op: Any, kind: str) -> list[int]:
    return [int(getattr(op, kind)(i)) for i in range(getattr(op, f"{kind}Length")())]


def _tensor(model: Any, tensor: Any) -> FileTensor:
    """uint8 as int8, 128 less: so the converter has it."""
    kind, buffer = _KINDS.get(tensor.Type(), ""), model.Buffers(tensor.Buffer())
    shape = tuple(map(int, tensor.ShapeAsNumpy())) if tensor.ShapeLength() else ()
    data = None
    if kind and buffer is not None and buffer.DataLength():
        data = np.frombuffer(buffer.DataAsNumpy().tobytes(), _DTYPES[kind]).reshape(shape)
    scales, zero_points = _quantization(tensor)
    if kind == "ui8":
        kind, zero_points = "i8", tuple(point - TO_SIGNED for point in zero_points)
        data = None if data is None else signed(data)
    return FileTensor(_text(tensor.Name()), shape, kind, scales, zero_points, data, tensor.IsVariable())


def _quantization(tensor: Any) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales and zero points."""
    one = tensor.Quantization()
    if one is None:
        return (), ()
    scales = tuple(float(one.Scale(i)) for i in range(one.ScaleLength()))
    return scales, tuple(int(one.ZeroPoint(i)) for i in range(one.ZeroPointLength()))


def _options(op: Any) -> dict[str, Any]:
    """What the options of an op say, by their names; empty where it has none."""
    name, stored = _names("BuiltinOptions").get(op.BuiltinOptionsType(), "NONE"), op.BuiltinOptions()
    if stored is None or name == "NONE":
        return {}
    table = getattr(import_module(f"ethosu.vela.tflite.{name}"), name)()
    table.Init(stored.Bytes, stored.Pos)
    getters = [key for key, one in vars(type(table)).items() if isfunction(one) and one.__code__.co_argcount == 1]
    return {key: getattr(table, key)() for key in getters}


@cache
def _names(enum: str) -> dict[int, str]:
    """The names of an enum of the schema by their numbers."""
    values = vars(getattr(import_module(f"ethosu.vela.tflite.{enum}"), enum))
    return {number: name for name, number in values.items() if isinstance(number, int)}


def _signature(model: Any, kind: str) -> dict[int, str]:
    """The names of inputs or results by tensor, where the file has one signature."""
    if model.SignatureDefsLength() != 1:
        return {}
    signature = model.SignatureDefs(0)
    maps = [getattr(signature, kind)(i) for i in range(getattr(signature, f"{kind}Length")())]
    return {one.TensorIndex(): _text(one.Name()) for one in maps}


def _fix_shapes(model: Any, inputs: Sequence[Edge], shapes: Mapping[str, Sequence[int]]) -> None:
    """Write static shapes over those that the file leaves open, in place; where an input is given another shape, those
    of all that depends on it stay open.

    Raises:
        ModelError: there is no input of a name, or it has another rank.
    """
    graph = model.Subgraphs(0)
    tensors = {edge.name: graph.Tensors(int(i)) for edge, i in zip(inputs, graph.InputsAsNumpy(), strict=True)}
    changed = False
    for name, shape in shapes.items():
        if name not in tensors:
            raise ModelError(f"there is no input `{name}`", hint=f"the file has {', '.join(tensors)}")
        stored = tensors[name].ShapeAsNumpy()
        if len(shape) != tensors[name].ShapeLength():
            raise ModelError(f"the input `{name}` has the shape {stored.tolist()}", why=f"{list(shape)} is given")
        changed |= list(shape) != stored.tolist()
        for row in _shape_rows(tensors[name]):
            row[:] = shape
    if changed:
        return
    for index in range(graph.TensorsLength()):
        stored, *signature = _shape_rows(graph.Tensors(index))
        for row in signature:
            row[:] = stored


def _shape_rows(tensor: Any) -> list[Any]:
    """Views of the stored shape, and of the signature with its open sizes where there is one."""
    if not tensor.ShapeLength():
        return [[]]
    rows = [tensor.ShapeAsNumpy()]
    if tensor.ShapeSignatureLength() == tensor.ShapeLength():
        rows.append(tensor.ShapeSignatureAsNumpy())
    return rows


@contextlib.contextmanager
def _standard_error() -> Iterator[Callable[[], str]]:
    """What C++ writes to standard error meanwhile."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: os.pread(file.fileno(), _SAID, 0).decode(errors="replace")
        finally:
            os.dup2(before, 2)
            os.close(before)


def _text(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")
