"""TOSA that others wrote: MLIR as text or bytecode, a flatbuffer, or what Arm's converter makes of a `.tflite`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import numpy as np

from tosaic.frontend.branches import select_branches
from tosaic.support.attributes import text_of
from tosaic.support.child import in_child
from tosaic.support.errors import Advice, ModelError, PassError
from tosaic.support.functions import body_of, note_states, returned, retype
from tosaic.support.locations import describe
from tosaic.support.mlir import (
    constant,
    constant_value,
    dense_values,
    element_type,
    functions,
    ir,
    parse,
    shape_of,
    walk,
)
from tosaic.support.tosa_builder import tensor
from tosaic.support.tosa_tools import tosa_of_tflite, tosa_tool

_VARIABLE = ("tosa.variable_read", "tosa.variable_write")
_NAMES = ("tosa.tensor_name", "tf_saved_model.index_path")
_TO_SIGNED = 128  # u8 is compiled as i8: every stored integer and zero point less this
_ONE_ROUNDING = 31  # up to this shift, DOUBLE_ROUND rounds once (TOSA 1.0, apply_scale_32)


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
    return isinstance(model, str) and Path(model).suffix in _READERS


def read_tosa(path: Path) -> TosaFile:
    """Read a file by its suffix.

    Raises:
        ModelError: it is missing or damaged, what reads it is not installed, or it is no one function of TOSA.
    """
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    try:
        module = _READERS[path.suffix](path)
    except PassError as error:
        raise ModelError(f"{path} cannot be read", where=error.where, why=error.why or error.what) from None
    known = functions(module)
    if len(known) != 1:
        raise ModelError(f"{path} does not hold one function", why=f"it holds {', '.join(known) or 'none'}")
    (main,) = known.values()
    with module.context, ir.Location.unknown():
        inputs, outputs = _names_of(main, "arg_attrs"), _names_of(main, "res_attrs")
        for attribute in [one for one in main.attributes if one not in ("sym_name", "function_type")]:
            del main.attributes[attribute]
        main.attributes["sym_name"] = ir.StringAttr.get("main")
        _without_casts(main)
        select_branches(main)
        states = _without_variables(module, main)
        warnings = _with_single_rounding(main) if path.suffix == ".tflite" else []
        unsigned = _without_unsigned(main)
        retype(main)
    note_states(module, len(states))
    block = body_of(main)
    names = list(map(_word, states))
    inputs = [*(inputs or [f"input_{i}" for i in range(len(block.arguments) - len(states))]), *names]
    outputs = [*(outputs or [f"output_{i}" for i in range(len(returned(main)) - len(states))]), *names]
    initial = [_signed(array) if array.dtype == np.uint8 else array for array in states.values()]
    return TosaFile(path.stem, module, inputs, outputs, tuple(initial), unsigned, tuple(warnings))


def _parsed(path: Path) -> ir.Module:
    return parse(path.read_bytes())


def _deserialized(path: Path) -> ir.Module:
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        empty, made = Path(folder, "empty.mlir"), Path(folder, "main.mlirbc")
        empty.write_text("module {}")
        option = f"--tosa-deserialize=tosa-flatbuffer-filename={path.absolute()}"
        done = subprocess.run(
            [tosa_tool("tosa-opt"), empty, option, "--emit-bytecode", "-o", made], capture_output=True, text=True
        )
        if done.returncode or not made.exists():
            why = (done.stderr.strip().splitlines() or [f"tosa-opt ended with {done.returncode}"])[0]
            raise ModelError(f"{path} cannot be read as a TOSA flatbuffer", why=why)
        return parse(made.read_bytes())


def _converted(path: Path) -> ir.Module:
    try:
        text = in_child(tosa_of_tflite, str(path))
    except ImportError:
        raise ModelError(f"{path} needs Arm's converter", hint="pip install tosaic[tflite]") from None
    except ChildProcessError:
        raise ModelError(f"{path} cannot be converted to TOSA", why="Arm's converter crashed") from None
    except Exception as error:
        raise ModelError(f"{path} cannot be converted to TOSA", why=str(error).strip()[:500]) from None
    return parse(text)


_READERS: dict[str, Callable[[Path], ir.Module]] = {
    ".mlir": _parsed,
    ".mlirbc": _parsed,
    ".tosa": _deserialized,
    ".tflite": _converted,
}


def _names_of(main: ir.Operation, attributes: str) -> list[str]:
    """The names of arguments or results as words; none where one has none, or two are the same."""
    rows = ir.ArrayAttr(main.attributes[attributes]) if attributes in main.attributes else []
    texts = [str(row[name]) for row in rows for name in _NAMES if name in row]
    words = [_word(text) for text in texts]
    return words if len(set(words)) == len(rows) else []


def _word(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")


def _without_casts(main: ir.Operation) -> None:
    """Without casts from a type to itself."""
    for op in walk(main):
        if op.name == "builtin.unrealized_conversion_cast" and op.operands[0].type == op.results[0].type:
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


def _with_single_rounding(main: ir.Operation) -> list[Advice]:
    """RESCALE with one rounding, which is another result where two round by a shift above 31."""
    changed = 0
    for op in walk(main):
        if op.name == "tosa.rescale" and "DOUBLE_ROUND" in str(op.attributes["rounding_mode"]):
            op.attributes["rounding_mode"] = ir.Attribute.parse("#tosa.rounding_mode<SINGLE_ROUND>")
            shifts = constant_value(op.operands[2])
            changed += shifts is None or bool((shifts > _ONE_ROUNDING).any())
    if not changed:
        return []
    what = f"{changed} rescales round once, where TensorFlow Lite rounds twice"
    return [Advice(what, "", "expect results that are a step apart")]


def _without_unsigned(main: ir.Operation) -> tuple[list[int], list[int]]:
    """u8 tensors as i8, 128 less; only RESCALE reads and writes them (TOSA 1.0, RESCALE). An i8 that it takes as
    unsigned keeps its bits.

    Returns:
        The numbers of the arguments, and of the results, that were u8.

    Raises:
        ModelError: another op does.
    """
    edges = list(body_of(main).arguments), returned(main)
    arguments, results = ([i for i, one in enumerate(edge) if str(element_type(one)) == "ui8"] for edge in edges)
    rescales = [op for op in walk(main) if op.name == "tosa.rescale"]
    ends = [(op, op.operands[0], 3, "input_unsigned") for op in rescales]
    ends += [(op, op.results[0], 4, "output_unsigned") for op in rescales]
    for op, value, zero_point, flag in [end for end in ends if str(element_type(end[1])) == "ui8"]:
        point = constant_value(op.operands[zero_point])
        if point is None:
            raise ModelError("a zero point is computed", where=str(op.location))
        with ir.InsertionPoint(op), op.location:
            op.operands[zero_point] = constant(_signed(point))
        op.attributes[flag] = ir.BoolAttr.get(False)
        value.set_type(tensor(shape_of(value), "i8"))
    for value in (*edges[0], *edges[1]):
        if str(element_type(value)) == "ui8":
            raise ModelError("an unsigned tensor is read by other ops than RESCALE", why=f"{value.type}")
    return arguments, results


def _signed(array: np.ndarray) -> np.ndarray:
    """u8 as i8, 128 less."""
    return (array.astype(np.int16) % 256 - _TO_SIGNED).astype(np.int8)
