"""The example firmware, built as its page says, runs on the simulator that stands in for its boards."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tosaic.backends.firmware import toolchain
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.build import Build
from tosaic.npu_execution import npu_for
from tosaic.support.processes import run_tool

FIRMWARE = Path(__file__).parents[2] / "examples" / "firmware"
DIGITS = f"{FIRMWARE.parent / 'digits' / 'model.py'}:digits"
PAGE = (FIRMWARE / "README.md").read_text()


@pytest.fixture(scope="module")
def compiled(succeed, tmp_path_factory):
    """A build of the digits for a board, by its name."""
    folder, made = tmp_path_factory.mktemp("builds"), dict[str, Path]()

    def compile_for(board: str | Path, *options: object) -> Path:
        name = Path(board).stem
        if name not in made:
            records = ("--records", folder / "records.db")
            succeed("compile", DIGITS, "--target", board, *options, *records, "--no-prove", "-o", folder / name)
            made[name] = folder / name
        return made[name]

    return compile_for


def image(board: str, build: Path, folder: Path, **definitions: object) -> Path:
    given = {"BOARD": board, "CMAKE_PREFIX_PATH": build / "kit", **definitions}
    run_tool("cmake", ["-S", FIRMWARE, "-B", folder, *(f"-D{name}={value}" for name, value in given.items())])
    run_tool("cmake", ["--build", folder])
    return folder / "app"


@pytest.mark.parametrize("board", ["stm32f446", "nrf5340"])
def test_a_board_without_an_npu(compiled, tmp_path, board):
    build = compiled(board)
    flashed = run_tool("llvm-readelf-22", ["-S", image(board, build, tmp_path / "flash")])
    boot = 0x0800_0000 if board == "stm32f446" else 0
    assert re.search(rf"\.boot +PROGBITS +0*{boot:x} ", flashed)
    assert re.search(r"\.arena +NOBITS +0*2[0-9a-f]{7} ", flashed)
    app = image(board, build, tmp_path / "simulated", MEMORY="stand-in.ld")
    (command,) = re.findall(r"^ +(qemu-system-arm .*) -kernel build/sim/app$", PAGE, re.MULTILINE)
    done = subprocess.run([*shlex.split(command), "-kernel", app], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "self-test: exact" in done.stdout + done.stderr


def test_the_line_of_gcc(compiled, tmp_path, monkeypatch):
    build = compiled("stm32f446")
    (line,) = re.findall(r"^ +(arm-none-eabi-gcc .*)$", PAGE, re.MULTILINE)
    (tmp_path / "examples").symlink_to(FIRMWARE.parent)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "kws").symlink_to(build)
    subprocess.run(shlex.split(line), cwd=tmp_path, check=True)
    header = run_tool("llvm-readelf-22", ["-h", tmp_path / "build" / "app.elf"])
    assert re.search(r"Entry point address: +0x80000", header)


def test_an_npu_and_arenas_in_two_memories(compiled, tmp_path):
    board, target = "alif-e7-hp", tmp_path / "target.toml"
    target.write_text('name = "alif"\nextends = "alif-e7-hp"\n[memory.dtcm]\nsize = 0x8400\n')
    folder = compiled(target, "--arena", "dtcm", "--arena", "sram0")
    header = (folder / "kit" / "include" / "model.h").read_text()
    assert "MODEL_ARENA_DTCM_BYTES" in header and "MODEL_ARENA_SRAM0_BYTES" in header
    sections = run_tool("llvm-readelf-22", ["-S", image(board, folder, tmp_path / "flash")])
    assert re.search(r"\.text +PROGBITS +0+ ", sections)  # runs in ITCM
    assert re.search(r"\.boot +PROGBITS +80000000 ", sections)
    app = image(
        board, folder, tmp_path / "simulated", MEMORY="stand-in.ld",
        EXTRA=f"{toolchain.SOURCES / 'npu_bridge.c'};{toolchain.SOURCES / 'semihosting.c'}",
        TOSAIC_SOURCES=toolchain.SOURCES,
    )  # fmt: skip
    build = Build.load(folder)
    done = Qemu.of(build.manifest.target).run(app, {}, npu=npu_for(build, "emulator"), count=False)
    assert "self-test: exact" in done.check("the example").console
