"""The GNU Arm toolchain: compiling C for a core and linking with newlib-nano."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tosaic.backends.target import Core
from tosaic.support.cache import cached
from tosaic.support.processes import run_tool

SOURCES = Path(__file__).parent
UNDER_MONITOR = "-DTOSAIC_MONITOR"
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_OPTIMIzATION = ("-O2", "-fno-tree-vectorize", "-ffunction-sections", "-fdata-sections")


_NEWER = {"cortex-m52": "cortex-m55", "cortex-m85": "cortex-m55"}
"""Cores that gcc 12 does not know, each with one of the same instructions that it knows."""


def core_flags(core: Core) -> list[str]:
    """The flags of gcc that name the core and its calling convention."""
    name, plus, left_out = core.name.partition("+")
    return [f"-mcpu={_NEWER.get(name, name)}{plus}{left_out}", f"-mfloat-abi={core.float_abi}", "-mthumb"]


def compile_c(source: Path, target: Path, core: Core, *flags: str) -> None:
    """Compile one C or assembly file to an object."""
    options = [*core_flags(core), *_OPTIMIzATION, *_WARNINGS, f"-I{SOURCES}", *flags]
    run_tool("arm-none-eabi-gcc", [*options, "-c", source, "-o", target])


def runtime_object(source: str | Path, core: Core, *flags: str) -> Path:
    """The object of one C file, of this folder where `source` is a bare name, compiled on first use."""
    path = SOURCES / source
    headers = [header.read_bytes() for header in sorted(SOURCES.glob("*.h"))]
    material: list[str | bytes] = [path.read_bytes(), *headers, *core_flags(core), *_OPTIMIzATION, *flags]
    return cached(f"{path.stem}.o", material, lambda target: compile_c(path, target, core, *flags))


def runtime_objects(core: Core) -> list[Path]:
    """What every ELF for a simulator needs: vectors, startup, fault reports and semihosting."""
    return [runtime_object(source, core) for source in ("startup.c", "start.c", "semihosting.c")]


def monitored_objects(core: Core) -> list[Path]:
    """The same of an image that runs under a monitor, which has the vectors; its entry is `start`."""
    return [runtime_object(source, core, UNDER_MONITOR) for source in ("start.c", "semihosting.c")]


def link(objects: Sequence[Path | str], script: Path, elf: Path, core: Core, *, entry: str = "Reset_Handler") -> None:
    """Link `objects` (or options) with newlib-nano as the linker script says; unused sections are dropped."""
    run_tool("arm-none-eabi-gcc", [*core_flags(core), "-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections",
             "-Wl,--no-warn-rwx-segments", f"-Wl,-e,{entry}", "-T", script, *objects, "-lm", "-o", elf])  # fmt: skip
