"""A board and a way to build one C file for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tosaic.backends.boards import MPS3_AN547
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.linker_script import linker_script
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.target import Layout, Memory

LAYOUT = Layout(
    code=Memory("itcm", 0, 512 * 1024),
    stack=Memory("dtcm", 0x2000_0000, 64 * 1024),
    arena=(Memory("sram", 0x2100_0000, 1024 * 1024),),
    constants=Memory("ddr", 0x6000_0000, 1024 * 1024),
)


@pytest.fixture
def qemu() -> Qemu:
    return Qemu(CORTEX_M55, MPS3_AN547)


@pytest.fixture
def build(tmp_path: Path) -> Callable[[str], Path]:
    def build(source: str) -> Path:
        (tmp_path / "main.c").write_text('#include "semihosting.h"\n#include "markers.h"\n' + source)
        (tmp_path / "board.ld").write_text(linker_script(LAYOUT))
        toolchain.compile_c(tmp_path / "main.c", tmp_path / "main.o", CORTEX_M55)
        objects = [*toolchain.runtime_objects(CORTEX_M55), tmp_path / "main.o"]
        toolchain.link(objects, tmp_path / "board.ld", tmp_path / "test.elf", CORTEX_M55)
        return tmp_path / "test.elf"

    return build
