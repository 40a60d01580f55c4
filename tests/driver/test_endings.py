"""However a command ends, it says so by its exit code and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import NETS

from tosaic.support.scratch import held

TOSAIC = Path(sys.executable).with_name("tosaic")
PATIENCE = 120


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Start a compilation in a process of its own, with folders of its own for the output and for temporary files."""
    for name in ("outputs", "temporary"):
        (tmp_path / name).mkdir()
    processes = []

    def start(*arguments: object) -> subprocess.Popen:
        command = [TOSAIC, "compile", f"{NETS}:small", "-o", tmp_path / "outputs" / "build", *arguments]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
            env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until_it_works(folder: Path, process: subprocess.Popen) -> None:
    limit = time.monotonic() + PATIENCE
    while not any((folder / "outputs").iterdir()):
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.05)


def left(folder: Path) -> list[str]:
    return [path.name for name in ("outputs", "temporary") for path in (folder / name).iterdir()]


@pytest.mark.parametrize("number, code, delay", [(signal.SIGTERM, 143, 0.0), (signal.SIGINT, 130, 0.5)])
def test_a_signal(started, tmp_path, number, code, delay):
    process = started()
    until_it_works(tmp_path, process)
    time.sleep(delay)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == code and "Traceback" not in said
    assert left(tmp_path) == []


def test_what_a_kill_left_is_collected_by_the_next(started, succeed, monkeypatch, tmp_path):
    process = started()
    until_it_works(tmp_path, process)
    process.kill()
    process.wait()
    assert ".build.new" in left(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    succeed("compile", f"{NETS}:small", "-o", tmp_path / "outputs" / "build")
    assert left(tmp_path) == ["build"]


def test_a_kill_between_the_renames_keeps_the_old_build(succeed, refused, tmp_path):
    compiling = ("compile", f"{NETS}:small", "-o", tmp_path / "outputs" / "build")
    succeed(*compiling)
    os.replace(tmp_path / "outputs" / "build", tmp_path / "outputs" / ".build.old")
    refused(*compiling, "--calibration", "absent.npz")
    assert os.listdir(tmp_path / "outputs") == ["build"]


def test_two_compilations_into_one_folder(started, tmp_path):
    with held(tmp_path / "outputs" / ".build.new"):
        processes = [started(), started()]
        for process in processes:
            assert process.stderr and process.stderr.readline().startswith(
                "waiting for another compilation that writes"
            )
    assert [process.wait(PATIENCE) for process in processes] == [0, 0]
    assert left(tmp_path) == ["build"]


@pytest.mark.parametrize("output", ["file/build", "/proc/build", "/dev/null/build", "x" * 300])
def test_an_output_that_cannot_be_written(refused, tmp_path, output):
    (tmp_path / "file").write_text("")
    message = refused("compile", f"{NETS}:small", "-o", tmp_path / output)
    assert "cannot write" in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
@pytest.mark.parametrize("size", ["4k", "32k", "96k"])
def test_a_full_disk(refused, tmp_path, size):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        assert "No space left on device" in refused("compile", f"{NETS}:small", "-o", disk / "build")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)
