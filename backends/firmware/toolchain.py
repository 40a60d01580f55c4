"""C and assembly to images with clang and lld; newlib-nano and libgcc come from Debian's GNU Arm toolchain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tosaic.backends.cortex_m.toolchain import CLANG, newlib_headers, target_flags
from tosaic.backends.target import Core
from tosaic.support.cache import cached
from tosaic.support.errors import unknown_name
from tosaic.support.processes import run_tool

SOURCES = Path(__file__).parent
UNDER_MONITOR = "-DTOSAIC_MONITOR"
_LINKER = "ld.lld-22"
_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Qunused-arguments")
_OPTIMIzATION = ("-O2", "-fno-unroll-loops", "-fno-vectorize", "-fno-slp-vectorize", "-meabi", "gnu",
                 "-ffunction-sections", "-fdata-sections", "-fstack-size-section")  # fmt: skip


def compile_c(source: Path, target: Path, core: Core, *flags: str) -> None:
    """Compile one C or assembly file to an object."""
    headers: list[str | Path] = ["-isystem", newlib_headers()] if source.suffix == ".c" else []
    options: list[str | Path] = [*target_flags(core), *_OPTIMIzATION, *_WARNINGS, f"-I{SOURCES}", *headers, *flags]
    run_tool(CLANG, [*options, "-c", source, "-o", target])


def runtime_object(source: str | Path, core: Core, *flags: str) -> Path:
    """The object of one C file, of this folder where `source` is a bare name, compiled on first use."""
    path = SOURCES / source
    headers = [header.read_bytes() for header in sorted(SOURCES.glob("*.h"))]
    material: list[str | bytes] = [path.read_bytes(), *headers, *target_flags(core), *_OPTIMIzATION, *flags]
    return cached(f"{path.stem}.o", material, lambda target: compile_c(path, target, core, *flags))


def runtime_objects(core: Core) -> list[Path]:
    """What every ELF for a simulator needs: vectors, startup, fault reports and semihosting."""
    return [runtime_object(source, core) for source in ("startup.c", "start.c", "semihosting.c")]


def monitored_objects(core: Core) -> list[Path]:
    """The same of an image that runs under a monitor, which has the vectors; its entry is `start`."""
    return [runtime_object(source, core, UNDER_MONITOR) for source in ("start.c", "semihosting.c")]


def link(objects: Sequence[Path | str], script: Path, elf: Path, core: Core, *, entry: str = "Reset_Handler") -> None:
    """Link `objects` (or lld's options) with newlib-nano as the linker script says; unused sections are dropped."""
    options = ["-static", "-m", "armelf", "--target2=rel", "--gc-sections", "--nmagic", "-e", entry]
    run_tool(_LINKER, [*options, "-T", script, *objects, *_libraries(core), "-o", elf])


_ARCHITECTURES = {
    "thumbv6m": "armv6s-m",
    "thumbv7m": "armv7-m",
    "thumbv7em": "armv7e-m",
    "thumbv8m.base": "armv8-m.base",
    "thumbv8m.main": "armv8-m.main",
    "thumbv8.1m.main": "armv8.1-m.main",
}
_EXTENSIONS = ("fp.dp", "fp", "mve")
"""Those that libraries are built for, the most first."""


@cache
def _libraries(core: Core) -> list[str]:
    """newlib-nano, its libm and libgcc, as gcc has them for an architecture: it knows fewer cores than clang.

    Raises:
        Error: the core's triple names no architecture of a Cortex-M.
    """
    architecture = _ARCHITECTURES.get(core.triple.partition("-")[0])
    if architecture is None:
        raise unknown_name("triple", core.triple, [f"{each}-none-eabi" for each in _ARCHITECTURES])
    extensions = [each for each in _EXTENSIONS if each in core.isa]
    extension = "mve" if "mve" in extensions else extensions[0] if extensions else ""
    asked = [f"-march={architecture}{f'+{extension}' if extension else ''}", f"-mfloat-abi={core.float_abi}", "-mthumb"]

    def found(library: str) -> str:
        return run_tool("arm-none-eabi-gcc", [*asked, f"-print-file-name={library}"]).strip()

    return ["--start-group", *map(found, ("libc_nano.a", "libm.a", "libgcc.a")), "--end-group"]
