"""What each phase leaves, as checks. A check is given a copy of the module, which it may spoil."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256

from tosaic.passes.fuse import fold_identities
from tosaic.passes.npu.reduce_rows import along_rows
from tosaic.passes.npu.rescale_to_table import looked_up
from tosaic.passes.rewrite import Pattern
from tosaic.passes.transposes import FEWEST
from tosaic.support.attributes import enum_of, text_of
from tosaic.support.errors import PassError
from tosaic.support.functions import body_of, callee_of, computing_ops, returned
from tosaic.support.locations import describe
from tosaic.support.loops import LOOP, iterations_of
from tosaic.support.mlir import TARGET_ENV, bytecode, dialect, functions, ir, run_pipeline, walk
from tosaic.support.tosa_ops import TOSA_OPS, is_constant

_quant = dialect("quant")
_CASTS = ("quant.qcast", "quant.dcast", "quant.scast")
_ELEMENTS = ("i1", "i4", "i8", "i16", "i32", "i48", "f32")
_FOURIER = ("tosa.fft2d", "tosa.rfft2d")
_SCALE, _ZERO_POINT = "tosaic.scale", "tosaic.zero_point"
_valid: set[bytes] = set()
"""Digests of modules that `tosa-validate` took: it takes milliseconds an op, and many a phase changes nothing."""


def check_legal(module: ir.Module) -> None:
    """A `main` and composites; in them only TOSA ops without branches, state and Fourier transforms, loops that count,
    quantizing casts, and calls of composites; static shapes of element types that some target computes.

    Raises:
        PassError: names the op and where it comes from.
    """
    known = functions(module)
    if "main" not in known:
        raise PassError("the module has no function `main`")
    for op in walk(module):
        if op.name == "func.call":
            if "tosaic.composite" not in known[callee_of(op)].attributes:
                raise PassError("a call of a function that is no composite is left", where=describe(op.location))
        elif op.name not in (*_CASTS, "func.func", "func.return"):
            _check_op(op)
        for value in [*op.operands, *op.results]:
            _check_type(value.type, op)
    for argument in body_of(known["main"]).arguments:
        _check_type(argument.type, known["main"])


def check_quantized(module: ir.Module) -> None:
    """One function `main` of TOSA ops on integers and f32: valid by MLIR's own validation for pro_int, pro_fp and
    int16, no RESCALE INEXACT_ROUND, no mark `tosaic.float`. Quantized arguments and results are integers with the
    attributes `tosaic.scale` and `tosaic.zero_point`.

    Raises:
        PassError: names the op, or carries the diagnostics of `tosa-validate`.
    """
    known = functions(module)
    if list(known) != ["main"]:
        raise PassError("there are other functions than `main`", why=", ".join(known))
    main = known["main"]
    *ops, _ = walk(main)
    for op in ops:
        for value in [*op.operands, *op.results]:
            if "!quant." in str(value.type):
                raise PassError(f"`{op.name}` still has the type `{value.type}`", where=describe(op.location))
            _check_type(value.type, op)
        _check_op(op)
        if op.name == "tosa.rescale" and enum_of(op, "rounding_mode") == "INEXACT_ROUND":
            raise PassError("a RESCALE is INEXACT_ROUND", where=describe(op.location))
        if "tosaic.float" in op.attributes:
            raise PassError(f"`{op.name}` still carries `tosaic.float`", where=describe(op.location))
    for kind, values in (("arg_attrs", list(body_of(main).arguments)), ("res_attrs", returned(main))):
        if kind in main.attributes:
            _check_annotations(kind, list(main.attributes[kind]), values)
            del main.attributes[kind]
    with module.context:
        module.operation.attributes["tosa.target_env"] = ir.Attribute.parse(TARGET_ENV)
    digest = sha256(bytecode(module)).digest()
    if digest not in _valid:
        run_pipeline(module, "builtin.module(tosa-validate)")
        _valid.add(digest)


def check_layout(module: ir.Module) -> None:
    """As `check_quantized`; no transpose of a transpose or a constant, none that is a reshape; no reshape of a reshape.

    Raises:
        PassError: names the op and the pattern that applies to it.
    """
    _check_none_apply(module, FEWEST)
    check_quantized(module)


def check_fused(module: ir.Module) -> None:
    """As `check_quantized`; no op that gives back its operand, no reshape of a reshape or a constant.

    Raises:
        PassError: names the op and the pattern that applies to it.
    """
    _check_none_apply(module, fold_identities.PATTERNS)
    check_quantized(module)


def check_for_npu(module: ir.Module) -> None:
    """As `check_layout`; no RESCALE that Ethos-U could look up in the op before it, no reduction along the channels
    that it could do along rows.

    Raises:
        PassError: names the op and the pattern that applies to it.
    """
    _check_none_apply(module, [looked_up, along_rows])
    check_layout(module)


def check_placed(module: ir.Module) -> None:
    """`main` holds constants, reshapes and calls; every other function is private, called once, and knows its
    processor. Ops on the NPU carry their number; where there is an NPU, ops on the CPU carry the reason.

    Raises:
        PassError: names what breaks this.
    """
    known = functions(module)
    main = known.pop("main")
    for op in walk(main):
        if not is_constant(op) and op.name not in ("tosa.reshape", "func.call", "func.return"):
            raise PassError(f"`{op.name}` is left in main after place", where=describe(op.location))
    calls = Counter(callee_of(op) for op in computing_ops(main) if op.name == "func.call")
    placed: dict[str, list[ir.Operation]] = {"cpu": [], "npu": []}
    for name, function in known.items():
        attributes = function.attributes
        if "sym_visibility" not in attributes or text_of(function, "sym_visibility") != "private":
            raise PassError(f"function `{name}` is not private")
        processor = text_of(function, "tosaic.processor") if "tosaic.processor" in attributes else ""
        if processor not in placed:
            raise PassError(f"function `{name}` has no processor", why=f"`tosaic.processor` is `{processor}`")
        if calls[name] != 1:
            raise PassError(f"function `{name}` is called {calls[name]} times")
        placed[processor] += computing_ops(function)
    _check_all_carry("tosaic.op", placed["npu"])
    if placed["npu"] or any("tosaic.reason" in op.attributes for op in placed["cpu"]):
        _check_all_carry("tosaic.reason", placed["cpu"])


def _check_op(op: ir.Operation) -> None:
    if not op.name.startswith("tosa."):
        raise PassError(f"`{op.name}` is left after legalize", where=describe(op.location), why="it is not of TOSA")
    if op.name not in TOSA_OPS or op.name in _FOURIER:
        raise PassError(f"`{op.name}` cannot be compiled", where=describe(op.location),
                        why="there is neither a branch nor state nor a Fourier transform on the target",
                        hint="write the model without it")  # fmt: skip
    if op.name == LOOP:
        iterations_of(op)


def _check_type(kind: ir.Type, op: ir.Operation) -> None:
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        if not str(kind).startswith("!tosa.shape"):
            raise PassError(f"`{op.name}` has the type `{kind}`", where=describe(op.location),
                            why="its shape is not static", hint="export the model for inputs of one size")  # fmt: skip
    elif not isinstance(kind.element_type, _quant.QuantizedType) and str(kind.element_type) not in _ELEMENTS:
        raise PassError(f"`{op.name}` has the type `{kind}`", where=describe(op.location),
                        why=f"`{kind.element_type}` is not among {', '.join(_ELEMENTS)}",
                        hint="cast it in the model: floats to float32, integers to int32")  # fmt: skip


def _check_annotations(kind: str, annotations: Sequence[ir.DictAttr], values: Sequence[ir.Value]) -> None:
    for number, (attributes, value) in enumerate(zip(annotations, values, strict=True)):
        found = [name for name in (_SCALE, _ZERO_POINT) if name in attributes]
        if not found:
            continue
        where = f"{kind} {number} of main, {value.type}"
        if len(found) == 1 or not isinstance(value.type.element_type, ir.IntegerType):
            raise PassError(f"a quantized argument or result is an integer tensor with `{_SCALE}` and `{_ZERO_POINT}`",
                            where=where, why=f"it has {' and '.join(found)}")  # fmt: skip
        scale = ir.FloatAttr(attributes[_SCALE]).value
        if not (math.isfinite(scale) and scale > 0):
            raise PassError(f"`{_SCALE}` is {scale}", where=where, why="scales are positive finite numbers")


def _check_all_carry(name: str, ops: Iterable[ir.Operation]) -> None:
    for op in ops:
        if name not in op.attributes:
            raise PassError(f"`{op.name}` has no `{name}`", where=describe(op.location))


def _check_none_apply(module: ir.Module, patterns: Sequence[Pattern]) -> None:
    for op in walk(module):
        for one in patterns:
            if op.name in one.names:
                with ir.InsertionPoint(op), op.location:
                    if one(op) is not None:
                        what = f"`{one.rule.__name__}` still applies to `{op.name}`"
                        raise PassError(what, where=describe(op.location))
