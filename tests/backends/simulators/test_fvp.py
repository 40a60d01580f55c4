"""The command lines of the FVPs. The FVPs themselves are the user's to bring, and none is run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tosaic.backends.simulators.fvp import fvp_command, run_on_fvp
from tosaic.support.errors import SimulatorError


def test_corstone_300_command_line():
    assert fvp_command(Path("/b/model.elf"), "ethos-u55-256", Path("/w")) == [
        "FVP_Corstone_SSE-300_Ethos-U55",
        "-C", "ethosu.num_macs=256",
        "-C", "cpu0.semihosting-enable=1",
        "-C", "cpu0.semihosting-cwd=/w",
        "-C", "mps3_board.telnetterminal0.start_telnet=0",
        "-C", "mps3_board.uart0.out_file=-",
        "-C", "mps3_board.visualisation.disable-visualisation=1",
        "-a", "/b/model.elf",
    ]  # fmt: skip


def test_corstone_320_command_line():
    command = fvp_command(Path("/b/model.elf"), "ethos-u85-1024", Path("/w"))
    assert command[0] == "FVP_Corstone_SSE-320"
    assert "mps4_board.subsystem.ethosu.num_macs=1024" in command
    assert "mps4_board.subsystem.cpu0.semihosting-enable=1" in command


def test_without_an_npu_the_u55_platform_runs_the_core():
    assert fvp_command(Path("m.elf"), None, Path("/w"))[0] == "FVP_Corstone_SSE-300_Ethos-U55"


def test_an_accelerator_that_no_fvp_has():
    with pytest.raises(SimulatorError, match="no FVP has the accelerator `ethos-n78-4`"):
        fvp_command(Path("m.elf"), "ethos-n78-4", Path("/w"))


@pytest.fixture
def build(tmp_path: Path) -> Path:
    record = {"core": "cortex-m55", "inputs": [], "outputs": [{"name": "y", "shape": [2], "dtype": "int8",
              "scale": None, "zero_point": None}], "calls": [], "arena_bytes": 0, "memories": {},
              "flash_bytes": 0}  # fmt: skip
    (tmp_path / "firmware.json").write_text(json.dumps(record))
    return tmp_path


def test_a_missing_fvp_says_where_it_comes_from(build, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SimulatorError, match=r"`FVP_Corstone_SSE-300_Ethos-U55` is not on PATH\n  try: download it"):
        run_on_fvp(build, [[]], "ethos-u55-128")


def test_files_cross_by_the_folder_that_the_command_line_names(build, tmp_path, monkeypatch):
    """A shell script in the FVP's place sees the command line and the inputs, and leaves outputs."""
    script = tmp_path / "FVP_Corstone_SSE-300_Ethos-U55"
    script.write_text(
        "#!/bin/sh\nfor a; do case $a in cpu0.semihosting-cwd=*) cd ${a#*=};; esac; done\n"
        "test -s inputs.bin && printf '\\001\\377\\002\\376' > outputs.bin\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    outputs = run_on_fvp(build, [[], []], "ethos-u55-128")
    assert [row[0].tolist() for row in outputs] == [[1, -1], [2, -2]]


def test_a_failing_fvp_is_quoted(build, tmp_path, monkeypatch):
    script = tmp_path / "FVP_Corstone_SSE-300_Ethos-U55"
    script.write_text("#!/bin/sh\necho no licence\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SimulatorError, match="ended with status 3\n  because: no licence"):
        run_on_fvp(build, [[]], "ethos-u55-128")
