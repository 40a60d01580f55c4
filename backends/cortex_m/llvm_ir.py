"""LLVM IR of kernels that MLIR lowers."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.support.attributes import text_of
from tosaic.support.errors import BackendError
from tosaic.support.mlir import dialect, ir, parse, run_pipeline, walk

LOWER_TO_LLVM = (
    "builtin.module(convert-vector-to-scf,lower-affine,arith-expand,convert-math-to-llvm,convert-math-to-libm,"
    "convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-to-llvm{dynamic=true},reconcile-unrealized-casts,canonicalize,cse)"
)


# Keeps clang from vectorizing: MVE flushes subnormal f32 to zero, which the scalar unit does not.
SCALAR_FLOATS = "noimplicitfloat"


def llvm_ir(sources: Sequence[KernelSource]) -> str:
    """The LLVM IR of `mlir` kernels, as one module.

    Raises:
        Error: a kernel does not parse, or an operation has no lowering; the message names it.
    """
    module = _merge(sources)
    run_pipeline(module, LOWER_TO_LLVM)
    _round_by_newlib(module)
    for op in walk(module):
        # Translating any other operation ends the process.
        if not op.name.startswith("llvm."):
            raise BackendError(f"`{op.name}` was not lowered to LLVM", why=str(op)[:500])
    with module.context:
        for op in module.body.operations:
            if op.operation.name == "llvm.func":
                op.operation.attributes["no_unwind"] = ir.UnitAttr.get()
                if any(isinstance(value.type, ir.F32Type) for inner in walk(op) for value in inner.results):
                    op.operation.attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(SCALAR_FLOATS)])
        return _hexadecimal_floats(str(dialect("llvm").translate_module_to_llvmir(module.operation)))


def _round_by_newlib(module: ir.Module) -> None:
    """Round to even by `rint`: cores without an instruction call a function, and newlib has no `roundeven`. Both are
    one in the rounding mode that no kernel leaves."""
    for op in walk(module):
        if op.name == "llvm.intr.roundeven":
            with module.context, ir.InsertionPoint(op), op.location:
                same = ir.Operation.create("llvm.intr.rint", [op.results[0].type], list(op.operands))
            op.results[0].replace_all_uses_with(same.results[0])
            op.erase()


_FLOAT = re.compile(r"\bf0x([0-9A-F]{8})\b|(?<![\w.])(?:-?\d+\.\d+e[+-]\d+|[+-](?:inf|qnan))\b")


def _hexadecimal_floats(text: str) -> str:
    """Every f32 constant as the bits of the f64 of the same value, which each version of LLVM reads.

    LLVM 24 prints the shortest decimal that rounds to an f32, and names infinity; LLVM 22 refuses such a name, and a
    decimal that is not an f32 exactly.
    """

    def double(match: re.Match[str]) -> str:
        bits = bytes.fromhex(match[1]) if match[1] else struct.pack(">f", float(match[0].replace("q", "")))
        return f"0x{struct.pack('>d', *struct.unpack('>f', bits)).hex().upper()}"

    return "\n".join(line if "double" in line else _FLOAT.sub(double, line) for line in text.split("\n"))


# The extrema of IEEE 754-2019, which newlib lacks: a NaN comes through, and -0 is less than 0.
EXTREMUM = """
define internal float @tosaic_{name}(float %a, float %b) alwaysinline nounwind {{
  %before = fcmp {before} float %a, %b
  %one = select i1 %before, float %a, float %b
  %equal = fcmp oeq float %a, %b
  %ai = bitcast float %a to i32
  %bi = bitcast float %b to i32
  %bits = {joined} i32 %ai, %bi
  %zero = bitcast i32 %bits to float
  %number = select i1 %equal, float %zero, float %one
  %unordered = fcmp uno float %a, %b
  %nan = fadd float %a, %b
  %result = select i1 %unordered, float %nan, float %number
  ret float %result
}}
"""


def with_extrema(text: str) -> str:
    """LLVM IR whose extrema of floats call no library."""
    for name, before, joined in (("minimum", "olt", "or"), ("maximum", "ogt", "and")):
        if f"@llvm.{name}.f32" in text:
            text = re.sub(rf"^declare .*@llvm\.{name}\.f32.*$", "", text, flags=re.MULTILINE)
            text = text.replace(f"@llvm.{name}.f32", f"@tosaic_{name}")
            text += EXTREMUM.format(name=name, before=before, joined=joined)
    return text


def _merge(sources: Sequence[KernelSource]) -> ir.Module:
    """One module of all kernels. Function definitions are weak, so that objects that share a kernel link together."""
    merged = parse("module attributes {dlti.dl_spec = #dlti.dl_spec<index = 32>} {}")
    seen: set[str] = set()
    with merged.context:
        weak = ir.Attribute.parse("#llvm.linkage<weak_odr>")
    for source in sources:
        module = parse(source.text)
        for op in list(module.body.operations):
            name = text_of(op.operation, "sym_name")
            if name in seen:
                continue
            seen.add(name)
            if name == source.symbol:
                op.operation.attributes["llvm.linkage"] = weak
            op.operation.detach_from_parent()
            merged.body.append(op)
    return merged
