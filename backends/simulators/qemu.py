"""Run an ELF on QEMU and count what it executes between `dbg #1` and `dbg #2`."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tosaic.backends.target import CORTEX_M55, Core
from tosaic.support.cache import cached
from tosaic.support.errors import SimulatorError
from tosaic.support.processes import ends_with_parent

_PLUGIN = Path(__file__).with_name("counting_plugin.c")
_FAULT = re.compile(r"^tosaic fault ((?:\w+=0x[0-9a-f]{8} ?)+)$", re.MULTILINE)
_LIMIT_EXIT = 124


@dataclass(frozen=True)
class Block:
    """A run of instructions that QEMU translated as one: `pc` in the guest, `size` in bytes, and their number.

    Where the last instruction crosses one of QEMU's pages, `size` holds only its first half.
    """

    pc: int
    size: int
    instructions: int


@dataclass(frozen=True)
class Region:
    """What ran between one `dbg #1` and the next `dbg #2`.

    Args:
        first, begin: the block that holds `dbg #1`, and its place among that block's instructions.
        last, end: the same of `dbg #2`.
        edges: how often block `to` ran right after block `from`, by (from, to), as numbers of `Execution.blocks`.
        instructions: instructions between the markers.
    """

    first: int
    begin: int
    last: int
    end: int
    edges: Mapping[tuple[int, int], int]
    instructions: int


@dataclass(frozen=True)
class Execution:
    """How a run ended. `failure` is empty unless the guest faulted, ran into a limit or QEMU itself gave up."""

    exit_code: int
    console: str
    blocks: Mapping[int, Block]
    regions: tuple[Region, ...]
    failure: str = ""
    timed_out: bool = False


def run(elf: Path, **options) -> Execution:
    """As `execute`, for a guest that is meant to end.

    Raises:
        SimulatorError: it faulted (with pc, lr, cfsr and the function), did not end, or QEMU failed.
    """
    execution = execute(elf, **options)
    if execution.failure:
        raise SimulatorError(f"{elf.name} did not run to its end", why=execution.failure)
    return execution


def execute(
    elf: Path,
    *,
    core: Core = CORTEX_M55,
    folder: Path | None = None,
    timeout: float = 120.0,
    region_limit: int | None = None,
    count: bool = True,
) -> Execution:
    """Run `elf` to its end, whichever that is.

    Args:
        folder: the guest's working folder for semihosting files; the current one where None.
        timeout: seconds of wall time.
        region_limit: instructions that one region may execute; more is a time-out, the same on every machine.
        count: whether to count regions; without it `regions` is empty.

    Raises:
        SimulatorError: QEMU is not installed, or the plugin does not build.
    """
    elf = elf.resolve()
    with tempfile.TemporaryDirectory(prefix="tosaic-") as scratch:
        counts = Path(scratch, "counts")
        command = qemu_command(elf, core)
        if count:
            limit = f",limit={region_limit}" if region_limit else ""
            command += ["-plugin", f"{_plugin()},out={counts}{limit}"]
        process = subprocess.Popen(
            ends_with_parent(command),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if process.poll() is None:
                process.kill()
                output, _ = process.communicate()
        blocks, regions, limited = _read_counts(counts) if count and counts.exists() else ({}, (), False)
    console = output.decode(errors="replace")
    failure = ""
    if late:
        failure = f"it did not end within {timeout:g} s"
    elif limited and process.returncode == _LIMIT_EXIT:
        failure = f"region {len(regions)} executed more than {region_limit} instructions"
    elif fault := _FAULT.search(console):
        failure = _describe_fault(elf, fault[1])
    elif process.returncode < 0 or (process.returncode == 1 and "qemu-system-arm:" in console):
        failure = f"QEMU ended with status {process.returncode}: {console.strip()[-1000:]}"
    return Execution(process.returncode, console, blocks, regions, failure, late or limited)


def qemu_command(elf: Path, core: Core) -> list[str]:
    """The command line that runs `elf` on the core's machine, with semihosting on.

    Raises:
        SimulatorError: QEMU is not installed.
    """
    qemu = shutil.which("qemu-system-arm")
    if qemu is None:
        raise SimulatorError("`qemu-system-arm` is not installed", hint="make setup installs the Debian packages")
    return [qemu, "-M", core.machine, "-display", "none", "-serial", "none", "-monitor", "none",
            "-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]  # fmt: skip


def symbol_at(elf: Path, address: int) -> str:
    """The function that holds `address`, as `name+0x12`; empty where the ELF names none.

    Raises:
        SimulatorError: llvm-nm is not installed.
    """
    nm = shutil.which("llvm-nm-22")
    if nm is None:
        raise SimulatorError("`llvm-nm-22` is not installed", hint="make setup installs the Debian packages")
    listing = subprocess.run([nm, "--numeric-sort", "--defined-only", elf], capture_output=True, text=True).stdout
    best = ""
    for line in listing.splitlines():
        value, kind, name = line.split(maxsplit=2)
        start = int(value, 16) & ~1
        if start > address:
            break
        if kind in "tTwW" and not name.startswith("$"):
            best = f"{name}+{address - start:#x}"
    return best


def _describe_fault(elf: Path, text: str) -> str:
    registers = dict(pair.split("=") for pair in text.split())
    places = []
    for name in ("pc", "lr"):
        value = registers.pop(name)
        symbol = symbol_at(elf, int(value, 16) & ~1)
        places.append(f"{name} {value}" + (f" ({symbol})" if symbol else ""))
    return f"the core faulted at {', '.join(places)}; " + ", ".join(f"{k} {v}" for k, v in registers.items())


def _plugin() -> Path:
    source = _PLUGIN.read_bytes()
    return cached("counting_plugin.so", [source], _build_plugin)


def _build_plugin(target: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        raise SimulatorError("`gcc` is not installed", hint="make setup installs the Debian packages")
    done = subprocess.run(
        [compiler, "-O2", "-fPIC", "-shared", "-fvisibility=hidden", _PLUGIN, "-o", target],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SimulatorError("QEMU's counting plugin does not compile", why=done.stderr.strip())


def _read_counts(path: Path) -> tuple[dict[int, Block], tuple[Region, ...], bool]:
    blocks: dict[int, Block] = {}
    regions: list[Region] = []
    edges: dict[tuple[int, int], int] = {}
    limited = False
    for line in path.read_text().splitlines():
        kind, *fields = line.split()
        values = [int(field) for field in fields]
        if kind == "E" and len(values) == 3:
            edges[values[0], values[1]] = values[2]
        elif kind == "B" and len(values) == 4:
            blocks[values[0]] = Block(*values[1:])
        elif kind == "R" and len(values) == 4:
            regions.append(_region(blocks, edges, *values))
            edges = {}
        elif kind == "L":
            limited = True
    return blocks, tuple(regions), limited


def _region(blocks: dict[int, Block], edges: dict[tuple[int, int], int], *ends: int) -> Region:
    first, begin, last, end = ends
    entered = sum(count * blocks[to].instructions for (_, to), count in edges.items())
    after_begin = blocks[first].instructions - begin - 1
    from_end = blocks[last].instructions - end
    return Region(first, begin, last, end, edges, entered + after_begin - from_end)
