"""Ops of a `.tflite` that its converter shall leave alone: calls of custom ops of ours, grafted into the flatbuffer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from tosaic.frontend.tflite_ops.registry import Call

OWN = "tosaic"
"""What the custom op is called; its options are its number, in decimal."""
_CUSTOM = 32
_OPERATOR_CODES, _OPERATORS = 6, 10  # places in the vtables of Model and SubGraph (schema.fbs)
_ALIGNMENT = 16


def graft(data: bytearray, calls: Mapping[int, Call]) -> bytearray:
    """A file whose first subgraph calls an op of ours in place of some of its own.

    Offsets of a flatbuffer point forward only. So what replaces a table is appended, whole, and the one offset that
    led to the old table is changed.

    Args:
        calls: those ops, by their number.
    """
    model = import_module("ethosu.vela.tflite.Model").Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    grafted, changes = bytearray(data), dict[int, int]()

    def append(place: int, make: Callable[[Any], int]) -> None:
        grafted.extend(bytes(-len(grafted) % _ALIGNMENT))
        builder = import_module("flatbuffers").Builder()
        builder.Finish(make(builder))
        made = builder.Output()
        changes[place] = len(grafted) + struct.unpack_from("<I", made)[0]
        grafted.extend(made)

    append(model._tab.Pos + model._tab.Offset(_OPERATOR_CODES), partial(_codes, codes=codes))
    operators = graph._tab.Vector(graph._tab.Offset(_OPERATORS))
    for number, call in calls.items():
        append(operators + 4 * number, partial(_call, code=len(codes), call=call))
    for place, target in changes.items():
        struct.pack_into("<I", grafted, place, target - place)
    return grafted


def _codes(builder: Any, codes: Sequence[Any]) -> int:
    """A vector of the ops that a file uses, and of ours."""
    table, made = import_module("ethosu.vela.tflite.OperatorCode"), []
    rows = [(code.DeprecatedBuiltinCode(), code.BuiltinCode(), code.Version(), code.CustomCode()) for code in codes]
    for deprecated, builtin, version, custom in (*rows, (_CUSTOM, _CUSTOM, 1, OWN)):
        name = 0 if custom is None else builder.CreateString(custom)
        table.Start(builder)
        table.AddDeprecatedBuiltinCode(builder, deprecated)
        table.AddCustomCode(builder, name)
        table.AddVersion(builder, version)
        table.AddBuiltinCode(builder, builtin)
        made.append(table.End(builder))
    builder.StartVector(4, len(made), 4)
    for one in reversed(made):
        builder.PrependUOffsetTRelative(one)
    return builder.EndVector()


def _call(builder: Any, code: int, call: Call) -> int:
    """An op of ours."""
    table = import_module("ethosu.vela.tflite.Operator")
    inputs, outputs = (builder.CreateNumpyVector(np.array(one, np.int32)) for one in (call.operands, call.results))
    options = builder.CreateByteVector(str(call.number).encode())
    table.Start(builder)
    table.AddOpcodeIndex(builder, code)
    table.AddInputs(builder, inputs)
    table.AddOutputs(builder, outputs)
    table.AddCustomOptions(builder, options)
    return table.End(builder)
