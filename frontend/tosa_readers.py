"""Modules of TOSA from files, read by a process that may crash, bounded in memory, time and depth."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tosaic.frontend.tflite_graph import Edge, convert
from tosaic.frontend.tflite_ops.expansion import expand_calls
from tosaic.support.child import in_child
from tosaic.support.errors import ModelError, PassError
from tosaic.support.functions import retype
from tosaic.support.mlir import bytecode, functions, ir, parse, run_pipeline
from tosaic.support.mlir_file import BOUNDS, check_depth, parse_checked
from tosaic.support.names import word
from tosaic.support.tosa_tools import tosa_tool

Shapes = Mapping[str, Sequence[int]]

_PLAIN_CRASHES = {"LLVM_DISABLE_SYMBOLIZATION": "1"}
"""Where a tool of LLVM crashes, it takes seconds to name the functions on its stack, which nobody reads here."""
_NAMES = ("tosa.tensor_name", "tf_saved_model.index_path")


class Read(NamedTuple):
    """What a file holds, as bytecode, with what it says of the function's arguments and results; empty where it says
    nothing."""

    module: bytes
    inputs: Sequence[Edge]
    outputs: Sequence[Edge]


def read_module(path: Path, shapes: Shapes) -> Read:
    """Read a file by its suffix.

    Raises:
        ModelError: it is missing or damaged, needs more than the bounds, what reads it is not installed, or it holds
            more than one function.
    """
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    if shapes and path.suffix != ".tflite":
        raise ModelError(f"{path} has its own shapes", hint="leave out --shape")
    try:
        return in_child(_read, str(path), dict(shapes), bounds=BOUNDS)
    except PassError as error:
        raise ModelError(f"{path} cannot be read", where=error.where, why=error.why or error.what) from None
    except ImportError:
        raise ModelError(f"{path} needs Arm's converter", hint="pip install tosaic[tflite]") from None
    except TimeoutError as error:
        raise ModelError(f"{path} cannot be read", why=str(error)) from None
    except (ChildProcessError, MemoryError):
        why = f"what reads it crashed, or needed more than {BOUNDS.bytes >> 30} GiB"
        raise ModelError(f"{path} cannot be read", why=why) from None


def _read(path: str, shapes: Shapes) -> Read:
    """In the child."""
    module, *edges = READERS[Path(path).suffix](path, shapes)
    known = functions(module)
    if len(known) != 1:
        raise ModelError(f"{path} does not hold one function", why=f"it holds {', '.join(known) or 'none'}")
    check_depth(module)
    (main,) = known.values()
    inputs, outputs = edges or (_named(main, "arg_attrs"), _named(main, "res_attrs"))
    with module.context:
        for attribute in [one for one in main.attributes if one not in ("sym_name", "function_type")]:
            del main.attributes[attribute]
    return Read(bytecode(module), inputs, outputs)


def _parsed(path: str, _: Shapes) -> tuple[ir.Module]:
    return (parse_checked(Path(path).read_bytes()),)


def _deserialized(path: str, _: Shapes) -> tuple[ir.Module]:
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        empty, made = Path(folder, "empty.mlir"), Path(folder, "main.mlirbc")
        empty.write_text("module {}")
        option = f"--tosa-deserialize=tosa-flatbuffer-filename={Path(path).absolute()}"
        done = subprocess.run(
            [tosa_tool("tosa-opt"), empty, option, "--emit-bytecode", "-o", made],
            capture_output=True, text=True, errors="replace", env=os.environ | _PLAIN_CRASHES,
        )  # fmt: skip
        if done.returncode or not made.exists():
            why = (done.stderr.strip().splitlines() or [f"tosa-opt ended with {done.returncode}"])[0]
            raise ModelError(f"{path} cannot be read as a TOSA flatbuffer", why=why)
        return (parse_checked(made.read_bytes()),)


def _converted(path: str, shapes: Shapes) -> tuple[ir.Module, Sequence[Edge], Sequence[Edge]]:
    try:
        made = convert(path, shapes)
        module = parse(made.text)

        def infer() -> None:
            with module.context:
                for main in functions(module).values():
                    retype(main)
            if shapes:
                run_pipeline(module, "builtin.module(func.func(tosa-infer-shapes))")

        expand_calls(module, made.calls, infer)
        infer()
        return parse(bytecode(module)), made.inputs, made.outputs
    except (struct.error, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ModelError(f"{path} cannot be read", why=f"it is damaged: {error}") from None


READERS: dict[str, Callable[[str, Shapes], tuple[ir.Module] | tuple[ir.Module, Sequence[Edge], Sequence[Edge]]]] = {
    ".mlir": _parsed,
    ".mlirbc": _parsed,
    ".tosa": _deserialized,
    ".tflite": _converted,
}
"""What reads a file in the child, by its suffix."""


def _named(main: ir.Operation, attributes: str) -> list[Edge]:
    """Arguments or results by the names that their attributes give; none where one has none."""
    rows = ir.ArrayAttr(main.attributes[attributes]) if attributes in main.attributes else []
    names = [word(str(row[name])) for row in rows for name in _NAMES if name in row]
    return [Edge(name, "", 0.0, 0) for name in names] if len(names) == len(rows) else []
