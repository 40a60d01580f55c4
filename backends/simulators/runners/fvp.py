"""Arm's Fixed Virtual Platforms, where the user has one on PATH.

An FVP has the NPU itself. Its clock is the instruction count, so it tells outputs and no costs.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tosaic.backends.ethos_u.accelerators import EthosU, find_accelerator
from tosaic.backends.simulators.execution import Execution
from tosaic.backends.simulators.npu_bridge import Execute
from tosaic.backends.target import Memory, Target
from tosaic.support.errors import SimulatorError

_WITHOUT_NPU = "ethos-u55-128"  # its platform runs the core just as well


@dataclass(frozen=True)
class Fvp:
    """The platform that has an accelerator."""

    accelerator: EthosU
    name: ClassVar[str] = "fvp"
    executes_npu: ClassVar[bool] = True
    monitored: ClassVar[bool] = False

    @classmethod
    def of(cls, target: Target) -> Fvp:
        """The platform that has the target's NPU."""
        return cls(find_accelerator(target.accelerator or _WITHOUT_NPU))

    def version(self) -> str:
        """The platform's name; it tells no costs, so that no record bears it."""
        return self.accelerator.fvp.executable

    def run(
        self,
        elf: Path,
        files: Mapping[str, bytes],
        *,
        npu: Execute | None = None,
        timeout: float = 3600.0,
        region_limit: int | None = None,
        count: bool = True,
        memories: Sequence[Memory] = (),
    ) -> Execution:
        """As `Runner.run`; nothing is counted, and the NPU is the platform's own.

        Raises:
            SimulatorError: the FVP is not on PATH.
        """
        with tempfile.TemporaryDirectory(prefix="tosaic-") as scratch:
            folder = Path(scratch)
            command = self.command(elf.resolve(), folder)
            if shutil.which(command[0]) is None:
                hint = "download it from developer.arm.com and put it on PATH, or run under QEMU"
                raise SimulatorError(f"`{command[0]}` is not on PATH", hint=hint)
            for name, data in files.items():
                (folder / name).write_bytes(data)
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=folder)
            except subprocess.TimeoutExpired:
                return Execution(
                    1, "", failure=f"`{command[0]}` did not end within {timeout:g} s", timed_out=True, late=True
                )
            left = {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in files}
        console = done.stdout + done.stderr
        failure = f"`{command[0]}` ended with status {done.returncode}: {console.strip()[-2000:]}"
        return Execution(done.returncode, console, left, failure=failure if done.returncode else "")

    def command(self, elf: Path, folder: Path) -> list[str]:
        """The command line that runs `elf` with `folder` as the guest's working folder."""
        platform = self.accelerator.fvp
        settings = (
            f"{platform.npu}.num_macs={self.accelerator.macs}",
            f"{platform.cpu}.semihosting-enable=1",
            f"{platform.cpu}.semihosting-cwd={folder}",
            f"{platform.board}.telnetterminal0.start_telnet=0",
            f"{platform.board}.uart0.out_file=-",
            *platform.settings,
        )
        return [platform.executable, *(part for setting in settings for part in ("-C", setting)), "-a", str(elf)]


RUNNER = Fvp
