"""The one door to MLIR's Python bindings.

Every room takes `ir`, `passmanager` and the dialects from here, so that the package which ships the bindings is
named once. LLVM's own wheels call it `mlir`, torch-mlir's call it `torch_mlir`.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from tosaic.support.errors import PassError
from tosaic.support.locations import describe

if TYPE_CHECKING:
    # Without a stub, the compiled module is of type Any.
    from torch_mlir._mlir_libs._mlir import ir, passmanager  # type: ignore[attr-defined]

    _ROOT = "torch_mlir"
else:
    try:
        from mlir import ir, passmanager
    except ImportError:
        from torch_mlir import ir, passmanager
    _ROOT = ir.__name__.rpartition(".")[0]

TARGET_ENV = (
    '#tosa.target_env<specification_version = "1.0", level = "8k", profiles = [pro_int, pro_fp], '
    "extensions = [int4, int16, controlflow, doubleround]>"
)


def dialect(name: str):
    """The Python module of a dialect, e.g. `dialect("tosa")`."""
    return importlib.import_module(f"{_ROOT}.dialects.{name}")


@cache
def context() -> ir.Context:
    """The one context of this process, with every upstream dialect registered.

    Its constants live as long as the process, equal ones once. It has no threads, which a forked child would miss.
    """
    one = ir.Context()
    one.enable_multithreading(False)
    return one


def parse(source: str | bytes) -> ir.Module:
    """Parse MLIR text or bytecode.

    Raises:
        PassError: the source does not parse or verify; the message carries MLIR's diagnostics.
    """
    try:
        return ir.Module.parse(source, context())
    except ir.MLIRError as error:
        where, why = diagnosis(error)
        raise PassError("this is not valid MLIR", where=where, why=why) from None


def copy_of(module: ir.Module) -> ir.Module:
    """Another module of copies of the same ops."""
    copy = ir.Module.create(module.operation.location)
    for name in module.operation.attributes:
        copy.operation.attributes[name] = module.operation.attributes[name]
    for op in module.body.operations:
        op.operation.clone(ir.InsertionPoint(copy.body))
    return copy


def diagnosis(error: ir.MLIRError) -> tuple[str, str]:
    """Where in the user's model an MLIRError arose, a line each, and what MLIR says of it."""
    places = dict.fromkeys(describe(one.location) for one in error.error_diagnostics)
    said = [one.message.replace("\0", "") for one in error.error_diagnostics]
    return "\n      ".join(filter(None, places)), "\n".join(said) or str(error)


def run_pipeline(module: ir.Module, pipeline: str) -> None:
    """Run a textual pass pipeline, e.g. `builtin.module(canonicalize,cse)`, in place.

    Raises:
        PassError: a pass failed or does not exist; the message carries the pipeline and MLIR's diagnostics.
    """
    with module.context:
        try:
            passmanager.PassManager.parse(pipeline).run(module.operation)
        except ir.MLIRError as error:
            where, why = diagnosis(error)
            raise PassError(f"`{pipeline}` failed", where=where, why=why) from None
        except ValueError as error:
            raise PassError(f"`{pipeline}` is not a pass pipeline", why=str(error)) from None


def walk(root: ir.Module | ir.Operation | ir.OpView) -> Iterator[ir.Operation]:
    """Every operation below `root` in program order, from a snapshot: erasing the yielded op is safe."""
    found: list[ir.Operation] = []

    def note(op):
        found.append(op)
        return ir.WalkResult.ADVANCE

    operation = root.operation
    operation.walk(note, ir.WalkOrder.PRE_ORDER)
    return iter([op for op in found if op != operation])


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The module's `func.func` ops by symbol name, in program order. They end with the module: keep a name for it."""
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }


_DTYPES = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
           "f32": np.float32, "f64": np.float64, "f16": np.float16}  # fmt: skip
# The reference model and the bindings exchange i4 in int8 and i48 in int64.
_WIDENED = {"i4": np.int8, "i48": np.int64}
ODD_WIDTHS = tuple(_WIDENED)
"""The element types that no numpy dtype has the width of."""


def numpy_dtype(element: ir.Type) -> np.dtype:
    """The numpy dtype that holds an MLIR element type; i4 is held in int8 and i48 in int64."""
    name = str(element)
    if name not in _DTYPES and name not in _WIDENED:
        raise PassError(f"no numpy dtype holds `{name}`")
    return np.dtype(_DTYPES.get(name) or _WIDENED[name])


def mlir_type(dtype: np.dtype | type) -> ir.Type:
    """The MLIR element type of a numpy dtype, in the current context."""
    name = next(k for k, v in _DTYPES.items() if np.dtype(v) == np.dtype(dtype))
    return ir.Type.parse(name)


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The static shape of a ranked tensor value."""
    return tuple(ir.RankedTensorType(value.type).shape)


def element_type(value: ir.Value) -> ir.Type:
    """The element type of a ranked tensor value."""
    return ir.RankedTensorType(value.type).element_type


def dense(array: np.ndarray, element: ir.Type | None = None) -> ir.DenseElementsAttr:
    """A dense attribute of `array`; `element` names a type numpy lacks (i4, i48)."""
    array = np.asarray(array, order="C")
    if element is None:
        element = mlir_type(array.dtype)
    kind = ir.RankedTensorType.get(array.shape, element)
    if str(element) in _WIDENED:
        return ir.Attribute.parse(f"dense<{array.tolist()}> : {kind}")
    return ir.DenseElementsAttr.get(array, type=kind)


def constant(array: np.ndarray, element: ir.Type | None = None, loc: ir.Location | None = None) -> ir.Value:
    """A `tosa.const` of `array` at the current insertion point."""
    attr = dense(array, element)
    return ir.Operation.create("tosa.const", results=[attr.type], attributes={"values": attr}, loc=loc).result


def constant_shape(dims: Sequence[int], loc: ir.Location | None = None) -> ir.Value:
    """A `tosa.const_shape` at the current insertion point."""
    index = ir.IndexType.get()
    values = ir.DenseElementsAttr.get(np.asarray(dims, np.int64), type=ir.RankedTensorType.get([len(dims)], index))
    kind = ir.Type.parse(f"!tosa.shape<{len(dims)}>")
    return ir.Operation.create("tosa.const_shape", results=[kind], attributes={"values": values}, loc=loc).result


def constant_value(value: ir.Value) -> np.ndarray | None:
    """The array behind a value made by `tosa.const` or `tosa.const_shape`, None where it is computed."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name not in ("tosa.const", "tosa.const_shape"):
        return None
    return dense_values(owner.attributes["values"])


def dense_values(attr: ir.Attribute) -> np.ndarray:
    """The array behind a dense elements attribute; `index` comes as int64, i4 as int8, i48 as int64.

    It may be the context's own copy, which nobody can write.
    """
    kind = ir.RankedTensorType(attr.type)
    name = str(kind.element_type)
    dtype = np.dtype(np.int64) if name == "index" else numpy_dtype(kind.element_type)
    if name in _WIDENED:
        return _odd_width_values(str(attr), kind.element_type.width, kind.shape).astype(dtype)
    if isinstance(attr, ir.DenseElementsAttr) and attr.is_splat:
        return np.full(kind.shape, attr.get_splat_value().value, dtype)
    return np.asarray(attr)


def _odd_width_values(text: str, width: int, shape: Sequence[int]) -> np.ndarray:
    """Integers that the bindings cannot read, from the text of their attribute."""
    body = text[: text.rindex(":")]
    if hexadecimal := re.search(r'"0x([0-9A-F]*)"', body):
        data, size = bytes.fromhex(hexadecimal[1]), -(-width // 8)
        values = [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]
        values = [value - (1 << width) if value >> (width - 1) else value for value in values]
    else:
        values = [int(value) for value in re.findall(r"-?\d+", body)]
    return np.broadcast_to(np.array(values, np.int64), math.prod(shape)).reshape(shape)


def bytecode(module: ir.Module) -> bytes:
    """The module as MLIR bytecode, locations included."""
    stream = BytesIO()
    module.operation.write_bytecode(stream)
    return stream.getvalue()


def bare_bytecode(module: ir.Module) -> bytes:
    """The module as MLIR bytecode without locations, which it loses: equal modules are equal bytes."""
    run_pipeline(module, "builtin.module(strip-debuginfo)")
    return bytecode(module)
