"""Run a built firmware on one of Arm's Fixed Virtual Platforms, where the user has one on PATH.

An FVP has the NPU itself. Its clock is the instruction count, so it tells outputs and not cycles.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.backends.firmware.build import Firmware
from tosaic.backends.simulators.run import check_inputs, read_outputs, write_inputs
from tosaic.support.errors import SimulatorError


@dataclass(frozen=True)
class Platform:
    """An FVP and the names of its parameters.

    Args:
        executable: as the download names it.
        npu, cpu, board: the instances that hold the parameters.
        settings: further parameters, for a run without windows or terminals.
    """

    executable: str
    npu: str
    cpu: str
    board: str
    settings: tuple[str, ...] = ()


_SSE_300_SETTINGS = ("mps3_board.visualisation.disable-visualisation=1",)
_SSE_320_SETTINGS = ("mps4_board.visualisation.disable-visualisation=1", "vis_hdlcd.disable_visualisation=1")

PLATFORMS = {
    "ethos-u55": Platform("FVP_Corstone_SSE-300_Ethos-U55", "ethosu", "cpu0", "mps3_board", _SSE_300_SETTINGS),
    "ethos-u65": Platform("FVP_Corstone_SSE-300_Ethos-U65", "ethosu", "cpu0", "mps3_board", _SSE_300_SETTINGS),
    "ethos-u85": Platform(
        "FVP_Corstone_SSE-320",
        "mps4_board.subsystem.ethosu",
        "mps4_board.subsystem.cpu0",
        "mps4_board",
        _SSE_320_SETTINGS,
    ),
}


def fvp_command(elf: Path, accelerator: str | None, folder: Path) -> list[str]:
    """The command line that runs `elf` with semihosting files in `folder`.

    Args:
        accelerator: as Vela names it, e.g. `ethos-u55-128`; None runs on the U55's platform.

    Raises:
        SimulatorError: no FVP has this accelerator.
    """
    generation, _, macs = (accelerator or "ethos-u55-128").rpartition("-")
    if generation not in PLATFORMS:
        raise SimulatorError(f"no FVP has the accelerator `{accelerator}`", hint=f"one of {', '.join(PLATFORMS)}")
    platform = PLATFORMS[generation]
    settings = (
        f"{platform.npu}.num_macs={macs}",
        f"{platform.cpu}.semihosting-enable=1",
        f"{platform.cpu}.semihosting-cwd={folder}",
        f"{platform.board}.telnetterminal0.start_telnet=0",
        f"{platform.board}.uart0.out_file=-",
        *platform.settings,
    )
    return [platform.executable, *(part for setting in settings for part in ("-C", setting)), "-a", str(elf)]


def run_on_fvp(
    build: Path, samples: Sequence[Sequence[np.ndarray]], accelerator: str | None, *, timeout: float = 3600.0
) -> tuple[tuple[np.ndarray, ...], ...]:
    """The model's outputs for each sample, from the FVP that has the accelerator.

    Raises:
        BackendError: the folder holds no firmware.
        SimulatorError: the FVP is not on PATH, an input does not fit, or the run failed or took over `timeout` seconds.
    """
    firmware = Firmware.load(build)
    check_inputs(firmware.inputs, samples)
    with tempfile.TemporaryDirectory(prefix="tosaic-") as name:
        folder = Path(name)
        command = fvp_command((build / "model.elf").resolve(), accelerator, folder)
        if shutil.which(command[0]) is None:
            hint = "download it from developer.arm.com and put it on PATH, or run under QEMU"
            raise SimulatorError(f"`{command[0]}` is not on PATH", hint=hint)
        write_inputs(folder, samples)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=folder)
        except subprocess.TimeoutExpired:
            raise SimulatorError(f"`{command[0]}` did not end within {timeout:g} s") from None
        if done.returncode or not (folder / "outputs.bin").exists():
            why = (done.stdout + done.stderr).strip()[-2000:]
            raise SimulatorError(f"`{command[0]}` ended with status {done.returncode}", why=why)
        return read_outputs(folder, firmware.outputs, len(samples))
