"""Kernel sources to object files with clang: many kernels a call, a failing one never stops the others."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.llvm_ir import EXTREMUM, LOWER_TO_LLVM, SCALAR_FLOATS, llvm_ir, with_extrema
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError, Error
from tosaic.support.processes import errors_of, installed, run_tool

CLANG = "clang-22"
SECONDS_PER_CALL = 60.0
"""A clang call that takes longer is stopped; its kernels are tried in smaller groups, then given up."""


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
            text = with_extrema(text)
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
    made_by = (clang_version(), LOWER_TO_LLVM, SCALAR_FLOATS, EXTREMUM, *flags)
    return _digest(*made_by, source.language, source.symbol, source.text)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def clang_version() -> str:
    """What `clang-22 --version` prints."""
    return run_tool(CLANG, ["--version"])
