"""The example firmware, built as its page says, runs on the simulator that stands in for its boards."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from tosaic.api import Build
from tosaic.backends.firmware import toolchain
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.runs.npu_execution import npu_for
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


@pytest.fixture(scope="module")
def for_an_npu(compiled, tmp_path_factory):
    target = tmp_path_factory.mktemp("target") / "target.toml"
    target.write_text('name = "alif"\nextends = "alif-e7-hp"\n[memory.dtcm]\nsize = 0x8400\n')
    return compiled(target, "--arena", "dtcm", "--arena", "sram0")


def test_an_npu_and_arenas_in_two_memories(for_an_npu, tmp_path):
    board, folder = "alif-e7-hp", for_an_npu
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


def test_what_the_npu_counted_beside_velas_estimate(for_an_npu, succeed, refused, tmp_path):
    manifest = Build.load(for_an_npu).manifest
    (region,) = manifest.regions
    number = [call.name for call in manifest.firmware.calls].index(region.name)
    lines = "".join(f"npu call {number}: {cycles} cycles\n" for cycles in (900, 1000, 1300))
    (tmp_path / "log.txt").write_text(f"self-test: exact\n{lines}")
    (row,) = succeed("npu", "measured", for_an_npu, tmp_path / "log.txt")["regions"]
    assert (row["calls"], row["cycles"], row["estimate"]) == (3, 1000, region.cycles)
    assert row["ratio"] == pytest.approx(1000 / region.cycles)
    with board_that_tells(lines) as where:
        (row,) = succeed("npu", "measured", for_an_npu, where)["regions"]
    assert (row["calls"], row["cycles"]) == (1, 900)  # each region once
    (tmp_path / "log.txt").write_text("npu call 99: 5 cycles\n")
    assert "call 99 of the build is none of an NPU" in refused("npu", "measured", for_an_npu, tmp_path / "log.txt")
    (tmp_path / "log.txt").write_text("nothing\n")
    assert "tells of no NPU call" in refused("npu", "measured", for_an_npu, tmp_path / "log.txt")


@contextmanager
def board_that_tells(lines: str):
    """A serial port that brings the lines again and again."""

    def tell() -> None:
        with server.accept()[0] as line, contextlib.suppress(OSError):
            while not done.wait(0.05):
                line.sendall(lines.encode())

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        teller = threading.Thread(target=tell)
        teller.start()
        yield f"serial:socket://127.0.0.1:{server.getsockname()[1]}"
        done.set()
        teller.join()
