"""The command lines of the FVPs. The FVPs themselves are the user's to bring, and none is run here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tosaic.backends.simulators.runners.fvp import Fvp
from tosaic.support.errors import BackendError, SimulatorError
from tosaic.target_files.ready import find_target

TARGET = find_target("corstone-300")


def command(accelerator: str | None) -> list[str]:
    return Fvp.of(replace(TARGET, accelerator=accelerator)).command(Path("/b/model.elf"), Path("/w"))


def test_corstone_300_command_line():
    assert command("ethos-u55-256") == [
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
    line = command("ethos-u85-1024")
    assert line[0] == "FVP_Corstone_SSE-320"
    assert "mps4_board.subsystem.ethosu.num_macs=1024" in line
    assert "mps4_board.subsystem.cpu0.semihosting-enable=1" in line


def test_without_an_npu_the_u55_platform_runs_the_core():
    assert command(None)[0] == "FVP_Corstone_SSE-300_Ethos-U55"


def test_an_accelerator_that_no_fvp_has():
    with pytest.raises(BackendError, match="no accelerator is called `ethos-n78-4`"):
        command("ethos-n78-4")


def test_a_missing_fvp_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SimulatorError, match=r"`FVP_Corstone_SSE-300_Ethos-U55` is not on PATH\n  try: download it"):
        Fvp.of(TARGET).run(tmp_path / "model.elf", {})


def test_files_cross_by_the_folder_that_the_command_line_names(tmp_path, monkeypatch):
    """A shell script in the FVP's place sees the command line and the inputs, and leaves outputs."""
    script = tmp_path / "FVP_Corstone_SSE-300_Ethos-U55"
    script.write_text(
        "#!/bin/sh\nfor a; do case $a in cpu0.semihosting-cwd=*) cd ${a#*=};; esac; done\n"
        "test -s inputs.bin && printf '\\001\\377\\002\\376' > outputs.bin\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    execution = Fvp.of(TARGET).run(tmp_path / "model.elf", {"inputs.bin": b"something"})
    assert execution.check("it").files == {"outputs.bin": b"\x01\xff\x02\xfe"}
    assert execution.costs == ()


def test_a_failing_fvp_is_quoted(tmp_path, monkeypatch):
    script = tmp_path / "FVP_Corstone_SSE-300_Ethos-U55"
    script.write_text("#!/bin/sh\necho no licence\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    execution = Fvp.of(TARGET).run(tmp_path / "model.elf", {})
    with pytest.raises(SimulatorError, match="ended with status 3: no licence"):
        execution.check("the firmware")
