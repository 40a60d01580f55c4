"""QEMU: counts what runs between markers (`markers.h`), and gives NPU calls to the host."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from tosaic.backends.simulators.counting import Counts, plugin, read_counts, watch
from tosaic.backends.simulators.cycle_model import CycleModel
from tosaic.backends.simulators.execution import Cost, Execution
from tosaic.backends.simulators.faults import describe_fault
from tosaic.backends.simulators.memory_model import Traffic, traffic, word_of
from tosaic.backends.simulators.npu_bridge import Execute, NpuBridge
from tosaic.backends.simulators.stand_in import MACHINE_OPTIONS, simulation_of
from tosaic.backends.target import Board, Core, Memory, Target
from tosaic.support.processes import confined, installed, run_tool

_QEMU = "qemu-system-arm"
_FAULT = re.compile(r"^tosaic fault ((?:\w+=0x[0-9a-f]{8} ?)+)$", re.MULTILINE)
_REGISTER = re.compile(r"(\w+)=(\w+)")
_LOCKUP = "qemu: fatal: Lockup"
_LIMIT_EXIT = 124


@dataclass(frozen=True)
class Qemu:
    """One machine of `qemu-system-arm`."""

    core: Core
    board: Board
    name: ClassVar[str] = "qemu"
    executes_npu: ClassVar[bool] = False
    monitored: ClassVar[bool] = False

    @classmethod
    def of(cls, target: Target) -> Qemu:
        """The machine that the target's board is, or that stands in for it."""
        on = simulation_of(target)
        return cls(target.core, Board(on.machine, on.cpu))

    def version(self) -> str:
        """The first line of `qemu-system-arm --version`, and the board.

        Raises:
            BackendError: QEMU is not installed.
        """
        return f"{_version(installed(_QEMU))} {self.board.machine}"

    def run(
        self,
        elf: Path,
        files: Mapping[str, bytes],
        *,
        npu: Execute | None = None,
        timeout: float = 120.0,
        region_limit: int | None = None,
        count: bool = True,
        memories: Sequence[Memory] = (),
    ) -> Execution:
        """As `Runner.run`.

        Raises:
            BackendError: QEMU is not installed, or the plugin does not build.
            SimulatorError: `npu` failed.
        """
        elf = elf.resolve()
        with tempfile.TemporaryDirectory(prefix="tosaic-") as scratch:
            folder, counted = Path(scratch, "guest"), Path(scratch, "counts")
            folder.mkdir()
            for name, data in files.items():
                (folder / name).write_bytes(data)
            command = self.command(elf)
            if count:
                limit = [f"limit={region_limit}"] if region_limit else []
                watched = watch(memories, word_of(self.core.pipeline))
                command += ["-plugin", ",".join([str(plugin()), f"out={counted}", *limit, *watched])]
            with NpuBridge(folder, npu) if npu else contextlib.nullcontext():
                code, console, late = _guest(confined(command, Path(scratch)), folder, timeout)
            counts = read_counts(counted)
            left = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        failure = ""
        if late:
            failure = f"it did not end within {timeout:g} s"
        elif counts.limited and code == _LIMIT_EXIT:
            failure = f"region {len(counts.regions)} executed more than {region_limit} instructions"
        elif fault := _FAULT.search(console):
            failure = describe_fault(elf, {name: int(value, 16) for name, value in _REGISTER.findall(fault[1])})
        elif _LOCKUP in console:
            failure = (
                f"the core locked up on `{self.board.machine}`: code or stack lie where that machine has no memory, or "
                "its core does not have the instructions of the target's"
            )
        elif code < 0 or (code == 1 and "qemu-system-arm:" in console):
            failure = f"QEMU ended with status {code} on `{self.board.machine}`: {_words(console)}"
        written = {name: data for name, data in left.items() if name not in files}
        costs = self._costs(elf, counts, memories)
        return Execution(code, console, written, costs, failure, late or counts.limited, late)

    def command(self, elf: Path) -> list[str]:
        """The command line that runs `elf`, with semihosting on.

        Raises:
            BackendError: QEMU is not installed.
        """
        cpu = ["-cpu", self.board.cpu] if self.board.cpu else []
        # The sandbox keeps a guest that takes over QEMU from starting programs or gaining rights.
        machine = self.board.machine or "none"
        return [installed(_QEMU), "-M", machine, *MACHINE_OPTIONS.get(machine, ()), *cpu,
                "-display", "none", "-serial", "none", "-monitor", "none",
                "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
                "-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]  # fmt: skip

    def _costs(self, elf: Path, counts: Counts, memories: Sequence[Memory]) -> tuple[Cost, ...]:
        pipeline = self.core.pipeline
        if not counts.regions:
            return ()
        model = CycleModel(elf, counts.blocks, self.core.name, pipeline) if pipeline else None
        idle = [Traffic(memory.name) for memory in memories]
        return tuple(
            Cost(
                region.instructions,
                model.cycles(region) if model else None,
                tuple(
                    traffic(memory, region.requests[number], pipeline) if number in region.requests else idle[number]
                    for number, memory in enumerate(memories)
                ),
            )
            for region in counts.regions
        )


RUNNER = Qemu


@cache
def _version(path: str) -> str:
    return run_tool(path, ["--version"]).splitlines()[0]


def _words(console: str) -> str:
    """What QEMU itself said, without the registers that it prints with a fatal error."""
    said = re.findall(r"^(?:qemu: fatal|qemu-system-arm): (.*)", console, re.MULTILINE)
    return "; ".join(said) or console.strip()[-1000:]


def _guest(command: list[str], folder: Path, timeout: float) -> tuple[int, str, bool]:
    """Exit code, console, and whether the guest had to be stopped."""
    try:
        done = subprocess.run(
            command, cwd=folder, timeout=timeout,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return -signal.SIGKILL, (late.output or b"").decode(errors="replace"), True
    return done.returncode, done.stdout.decode(errors="replace"), False
