"""TOSA that others wrote: MLIR as text or bytecode, a flatbuffer, or what Arm's converter makes of a `.tflite`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard

import numpy as np

from tosaic.frontend.branches import select_branches
from tosaic.frontend.constant_casts import fold_constants
from tosaic.frontend.sizes import refuse_large_results
from tosaic.frontend.tflite_graph import Edge
from tosaic.frontend.tflite_meaning import Rounding, mend_converted
from tosaic.frontend.tosa_readers import READERS, Shapes, read_module
from tosaic.support.attributes import text_of
from tosaic.support.errors import Advice, ModelError
from tosaic.support.functions import body_of, note_states, returned, retype
from tosaic.support.locations import describe
from tosaic.support.mlir import (
    constant,
    constant_shape,
    constant_value,
    dense_values,
    element_type,
    functions,
    ir,
    parse,
    shape_of,
    walk,
)
from tosaic.support.names import word
from tosaic.support.quantization import TO_SIGNED, Quantization, annotate, signed
from tosaic.support.tosa_builder import tensor

_VARIABLE = ("tosa.variable_read", "tosa.variable_write")
_ANNOTATIONS = ("arg_attrs", "res_attrs")


@dataclass(frozen=True)
class TosaFile:
    """A module as it came in, which is the meaning of the program from here on.

    Args:
        module: one public function `main`, without variables and unsigned integers.
        input_names, output_names: those of the states last.
        states: what `main` keeps between calls, as it is before the first one: its last arguments and last results.
        bytes: the numbers of the inputs, and of the outputs, that are u8 in the file: i8, 128 less, in the module.
        warnings: what had to be made otherwise.
    """

    name: str
    module: ir.Module
    input_names: list[str]
    output_names: list[str]
    states: tuple[np.ndarray, ...]
    bytes: tuple[list[int], list[int]]
    warnings: tuple[Advice, ...]


def is_tosa_file(model: object) -> TypeGuard[str]:
    """Whether a model is the name of such a file."""
    return isinstance(model, str) and Path(model).suffix in READERS


def read_tosa(path: Path, shapes: Shapes = MappingProxyType({}), rounding: Rounding = "single") -> TosaFile:
    """Read a file by its suffix.

    Args:
        shapes: of inputs by name, in place of the file's.
        rounding: `tflite` keeps rescales that round twice, as TensorFlow Lite does; else all round once.

    Raises:
        ModelError: it is missing or damaged, what reads it is not installed, or it is no one function of TOSA.
    """
    read = read_module(path, shapes)
    module = parse(read.module)
    (main,) = functions(module).values()
    with module.context, ir.Location.unknown():
        main.attributes["sym_name"] = ir.StringAttr.get("main")
        _refuse_foreign_ops(main)
        refuse_large_results(main)
        _without_casts(main)
        select_branches(main)
        fold_constants(main)
        _with_known_shapes(main)
        refuse_large_results(main)
        states = _without_variables(module, main)
        warnings = mend_converted(main, rounding) if path.suffix == ".tflite" else []
        unsigned = _without_unsigned(main)
        retype(main)
        kept = [None] * len(states)
        for kind, edges in zip(_ANNOTATIONS, (read.inputs, read.outputs), strict=True):
            if edges:
                annotate(main, kind, [*(_quantization(one) for one in edges), *kept])
    note_states(module, len(states))
    given, results = (edge[: len(edge) - len(states)] for edge in _edges(main))
    names = list(map(word, states))
    inputs = [*_names(read.inputs, "input", len(given)), *names]
    outputs = [*_names(read.outputs, "output", len(results)), *names]
    initial = map(signed, states.values())
    return TosaFile(path.stem, module, inputs, outputs, tuple(initial), unsigned, tuple(warnings))


def _edges(main: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    return list(body_of(main).arguments), returned(main)


def _names(edges: Sequence[Edge], role: str, count: int) -> list[str]:
    """The names that a file gives; numbered ones where it gives none, or the same to two."""
    names = [edge.name for edge in edges]
    return names if all(names) and len(set(names)) == count else [f"{role}_{i}" for i in range(count)]


def _quantization(edge: Edge) -> Quantization | None:
    """How an edge is quantized in the module, where u8 is i8."""
    if not edge.storage:
        return None
    if edge.storage == "ui8":
        return Quantization.per_tensor("i8", edge.scale, edge.zero_point - TO_SIGNED)
    return Quantization.per_tensor(edge.storage, edge.scale, edge.zero_point)


def _refuse_foreign_ops(main: ir.Operation) -> None:
    for op in walk(main):
        if op.name == "tosa.custom":
            raise ModelError(
                f"the custom op `{text_of(op, 'operator_name')}` of {text_of(op, 'domain_name')} cannot be compiled",
                where=describe(op.location),
                why="what it computes stands outside of the module",
            )


def _with_known_shapes(main: ir.Operation) -> None:
    """RESHAPE to the shape of its result, where a size is left to be inferred."""
    for op in walk(main):
        if op.name == "tosa.reshape" and (dims := constant_value(op.operands[1])) is not None and (dims < 0).any():
            with ir.InsertionPoint(op), op.location:
                op.operands[1] = constant_shape(shape_of(op.results[0]))


def _without_casts(main: ir.Operation) -> None:
    """Without casts from a type to itself."""
    for op in walk(main):
        is_cast = op.name in ("builtin.unrealized_conversion_cast", "tosa.cast")
        if is_cast and op.operands[0].type == op.results[0].type:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def _without_variables(module: ir.Module, main: ir.Operation) -> dict[str, np.ndarray]:
    """Variables that `main` writes as its last arguments and results; those that it only reads as constants.

    Returns:
        What each of the former holds before the first call, by its name.

    Raises:
        ModelError: a loop or a branch uses one, or it holds nothing before the first call.
    """
    initial = _initial_values(module)
    uses = [(op, text_of(op, "name")) for op in walk(main) if op.name in _VARIABLE]
    for op, name in uses:
        if op.parent != main:
            raise ModelError(f"the variable `{name}` is used in a loop", where=describe(op.location))
        if name not in initial:
            raise ModelError(f"the variable `{name}` has no initial value", where=describe(op.location))
    states = list(dict.fromkeys(name for op, name in uses if op.name == "tosa.variable_write"))
    block, now = body_of(main), dict[str, ir.Value]()
    with ir.InsertionPoint.at_block_begin(block):
        for name in dict.fromkeys(name for _, name in uses if name not in states):
            now[name] = constant(dense_values(initial[name]), ir.RankedTensorType(initial[name].type).element_type)
    now |= {name: block.add_argument(initial[name].type, main.location) for name in states}
    for op, name in uses:
        if op.name == "tosa.variable_write":
            now[name] = op.operands[0]
        else:
            op.results[0].replace_all_uses_with(now[name])
        op.erase()
    *_, end = block.operations
    with ir.InsertionPoint(end), end.location:
        ir.Operation.create("func.return", operands=[*end.operands, *(now[name] for name in states)])
    end.operation.erase()
    return {name: dense_values(initial[name]) for name in states}


def _initial_values(module: ir.Module) -> dict[str, ir.Attribute]:
    """What each variable of a module holds before the first call; they are removed."""
    values = {}
    for op in walk(module):
        if op.name == "tosa.variable":
            if "initial_value" in op.attributes:
                values[text_of(op, "sym_name")] = op.attributes["initial_value"]
            op.erase()
    return values


def _without_unsigned(main: ir.Operation) -> tuple[list[int], list[int]]:
    """u8 tensors as i8, 128 less; only RESCALE reads and writes them (TOSA 1.0, RESCALE). An i8 that it takes as
    unsigned keeps its bits.

    Returns:
        The numbers of the arguments, and of the results, that were u8.

    Raises:
        ModelError: another op does.
    """
    edges = _edges(main)
    arguments, results = ([i for i, one in enumerate(edge) if str(element_type(one)) == "ui8"] for edge in edges)
    rescales = [op for op in walk(main) if op.name == "tosa.rescale"]
    ends = [(op, op.operands[0], 3, "input_unsigned") for op in rescales]
    ends += [(op, op.results[0], 4, "output_unsigned") for op in rescales]
    for op, value, zero_point, flag in [end for end in ends if str(element_type(end[1])) == "ui8"]:
        point = constant_value(op.operands[zero_point])
        if point is None:
            raise ModelError("a zero point is computed", where=str(op.location))
        with ir.InsertionPoint(op), op.location:
            op.operands[zero_point] = constant(signed(point.view(np.uint8)))
        op.attributes[flag] = ir.BoolAttr.get(False)
        value.set_type(tensor(shape_of(value), "i8"))
    for value in (*edges[0], *edges[1]):
        if str(element_type(value)) == "ui8":
            raise ModelError("an unsigned tensor is read by other ops than RESCALE", why=f"{value.type}")
    return arguments, results
