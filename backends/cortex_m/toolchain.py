"""Kernel sources to object files with clang: many kernels a call, a failing one never stops the others."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.target import Core
from tosaic.support.attributes import text_of
from tosaic.support.errors import BackendError, Error
from tosaic.support.mlir import dialect, ir, parse, run_pipeline, walk
from tosaic.support.processes import errors_of, installed, run_tool

CLANG = "clang-22"
SECONDS_PER_CALL = 60.0
"""A clang call that takes longer is stopped; its kernels are tried in smaller groups, then given up."""

LOWER_TO_LLVM = (
    "builtin.module(convert-vector-to-scf,lower-affine,arith-expand,convert-math-to-llvm,convert-math-to-libm,"
    "convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-to-llvm{dynamic=true},reconcile-unrealized-casts,canonicalize,cse)"
)

# Keeps clang from vectorizing: MVE flushes subnormal f32 to zero, which the scalar unit does not.
_SCALAR_FLOATS = "noimplicitfloat"

# The generators unroll by their own knobs; clang's unrolling on top of it spills vector registers.
# clang-22 may drop the end of a loop around a gather of LLVM's own (`llvm.masked.gather`, which the loop vectorizer and
# MLIR's vector.gather make); a kernel that wants a gather calls `llvm.arm.mve.vldr.gather.offset` itself.
_OPTIMIzATION = ("-O3", "-fno-unroll-loops", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections",
                 "-fstack-size-section", "-mllvm", "-enable-arm-maskedgatscat=false")  # fmt: skip
# clang orders code before it gives out registers, and may leave too few for a block of assembly that takes nearly all.
_AS_WRITTEN = ("-mllvm", "-enable-misched=false")
_TOO_FEW = "requires more registers"


@dataclass(frozen=True)
class CompiledKernels:
    """What `compile_kernels` made.

    Args:
        objects: the object files to link; together they define every symbol that compiled.
        errors: why each of the other symbols did not compile.
    """

    objects: tuple[Path, ...]
    errors: Mapping[str, str]


def compile_kernels(
    sources: Sequence[KernelSource],
    core: Core,
    folder: Path,
    include: Sequence[Path] = (),
    seconds: float = SECONDS_PER_CALL,
) -> CompiledKernels:
    """Compile kernels for a core into `folder`, which also serves as the cache: what is there is not compiled again.

    Args:
        sources: the kernels; equal symbols must mean equal code.
        core: the core to compile for.
        folder: where objects are kept; made when missing.
        include: header folders of `c` kernels.
        seconds: time limit of one clang call.

    Raises:
        BackendError: clang is missing, or one symbol stands for two different kernels.
    """
    unique = _unique(sources)
    folder.mkdir(parents=True, exist_ok=True)
    flags = [*target_flags(core), *_OPTIMIzATION]
    objects: dict[str, Path] = {}
    errors: dict[str, str] = {}
    missing = []
    for source in unique:
        cached = _cached(source, flags, folder)
        if cached is None:
            missing.append(source)
        else:
            objects[source.symbol] = cached
    groups = [[source for source in missing if source.language == "mlir"]]
    groups += _by_prelude([source for source in missing if source.language == "c"])
    left: list[tuple[Sequence[KernelSource], Sequence[str]]] = [(group, ()) for group in groups]
    while left:
        group, further = left.pop()
        if not group:
            continue
        try:
            made = _compile_group(group, flags, folder, include, seconds, further)
        except Error as error:
            if len(group) > 1:
                left += [(group[: len(group) // 2], further), (group[len(group) // 2 :], further)]
            elif _TOO_FEW in str(error) and further != _AS_WRITTEN:
                left.append((group, _AS_WRITTEN))
            else:
                errors[group[0].symbol] = str(error)
            continue
        objects.update({source.symbol: made for source in group})
    return CompiledKernels(tuple(dict.fromkeys(objects.values())), errors)


def target_flags(core: Core) -> list[str]:
    """clang's options that name the core, and the ABI of gcc without an operating system."""
    return [f"--target={core.triple}", f"-mcpu={core.name}", f"-mfloat-abi={core.float_abi}", "-mthumb",
            "-fshort-enums"]  # fmt: skip


@cache
def newlib_headers() -> Path:
    """The folder of newlib's headers, which `c` kernels may include.

    Raises:
        BackendError: the Arm bare-metal GCC, which knows it, is not installed.
    """
    asking = [installed("arm-none-eabi-gcc"), "-xc", "-E", "-v", os.devnull]
    asked = subprocess.run(asking, capture_output=True, text=True).stderr
    searched = [Path(line.strip()) for line in asked.splitlines() if line.startswith(" /")]
    found = next((path for path in searched if (path / "string.h").exists()), None)
    if found is None:
        raise BackendError("newlib's headers are missing", hint="install the Debian package libnewlib-arm-none-eabi")
    return found.resolve()


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
                    op.operation.attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(_SCALAR_FLOATS)])
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
_EXTREMUM = """
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


def _with_extrema(text: str) -> str:
    """LLVM IR whose extrema of floats call no library."""
    for name, before, joined in (("minimum", "olt", "or"), ("maximum", "ogt", "and")):
        if f"@llvm.{name}.f32" in text:
            text = re.sub(rf"^declare .*@llvm\.{name}\.f32.*$", "", text, flags=re.MULTILINE)
            text = text.replace(f"@llvm.{name}.f32", f"@tosaic_{name}")
            text += _EXTREMUM.format(name=name, before=before, joined=joined)
    return text


def _unique(sources: Sequence[KernelSource]) -> list[KernelSource]:
    unique: dict[str, KernelSource] = {}
    parts = [part for source in sources for part in source.parts]
    for source in (*sources, *parts):
        known = unique.setdefault(source.symbol, source)
        if (known.language, known.text) != (source.language, source.text):
            raise BackendError(f"two different kernels are called `{source.symbol}`")
    return list(unique.values())


def _compile_group(
    group: Sequence[KernelSource],
    flags: Sequence[str],
    folder: Path,
    include: Sequence[Path],
    seconds: float,
    further: Sequence[str],
) -> Path:
    """The object of some kernels; equal kernels and flags always have the same `further` ones."""
    if group[0].language == "mlir":
        text, language = llvm_ir(group), ["-x", "ir", "-Wno-override-module"]
        if "-mfloat-abi=soft" in flags:
            text = _with_extrema(text)
    else:
        headers = [f"-I{path}" for path in include]
        text, language = _join(group), ["-x", "c", *headers, "-isystem", str(newlib_headers())]
    keys = [_key(source, flags) for source in group]
    target = folder / f"{_digest(*sorted(keys))}.o"
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as partial:
        made = Path(partial.name)
    try:
        _run([installed(CLANG), *flags, *further, *language, "-c", "-", "-o", str(made)], text, seconds)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)
    for key in keys:
        _write(folder / f"{key}.where", target.name)
    return target


_LOCAL_DEFINITION = re.compile(r"^\}?(?:static|INLINE)\b[^=;{(\[]*?\b(\w+)\s*[=(\[]", re.MULTILINE)
_FIRST_DEFINITION = re.compile(r"^(?:INLINE|static|void)\b", re.MULTILINE)
_C_KERNELS_PER_CALL = 32


def _split_prelude(text: str) -> tuple[str, str]:
    """What stands before the first definition of a C kernel, and the rest."""
    first = _FIRST_DEFINITION.search(text)
    return (text[: first.start()], text[first.start() :]) if first else (text, "")


def _by_prelude(sources: Sequence[KernelSource]) -> list[list[KernelSource]]:
    """C kernels that can share a translation unit."""
    groups: dict[str, list[KernelSource]] = {}
    for source in sources:
        groups.setdefault(_split_prelude(source.text)[0], []).append(source)
    step = _C_KERNELS_PER_CALL
    return [group[i : i + step] for group in groups.values() for i in range(0, len(group), step)]


def _join(group: Sequence[KernelSource]) -> str:
    """One translation unit of C kernels with one prelude: starting clang and reading that costs more than a kernel.

    Names that are local to a kernel get its symbol as a suffix. A clash that remains makes clang refuse the group,
    which is then compiled in smaller ones.
    """
    parts = [_split_prelude(group[0].text)[0]]
    for source in group:
        body = _split_prelude(source.text)[1]
        names = dict.fromkeys(_LOCAL_DEFINITION.findall(body)) if len(group) > 1 else {}
        parts += [*(f"#define {name} {name}_{source.symbol}" for name in names), body]
        parts += [f"#undef {name}" for name in names]
    return "\n".join(parts)


def _run(command: Sequence[str], text: str, seconds: float) -> None:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise BackendError(f"clang took more than {seconds:g} s") from None
    if done.returncode:
        raise BackendError("clang refused the kernel", why=errors_of(done.stderr))


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


def _cached(source: KernelSource, flags: Sequence[str], folder: Path) -> Path | None:
    where = folder / f"{_key(source, flags)}.where"
    if not where.exists():
        return None
    found = folder / where.read_text()
    return found if found.is_file() else None


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def _key(source: KernelSource, flags: Sequence[str]) -> str:
    made_by = (clang_version(), LOWER_TO_LLVM, _SCALAR_FLOATS, _EXTREMUM, *flags)
    return _digest(*made_by, source.language, source.symbol, source.text)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def clang_version() -> str:
    """What `clang-22 --version` prints."""
    return run_tool(CLANG, ["--version"])
