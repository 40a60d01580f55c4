"""Folders of one process: locked while it lives, collected when it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tosaic.support import scratch
from tosaic.support.scratch import held, lasting_folder, temporary_files

KILLED = """
import os, signal, sys, tempfile
from pathlib import Path
from tosaic.support import scratch
from tosaic.support.scratch import held, temporary_files
with temporary_files(), held(Path(sys.argv[1])) as folder:
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("half")
    tempfile.mkdtemp()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """Where temporary files go, for this process and its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_what_a_killed_process_left_is_collected(tmp_path, temporary):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "work"])
    assert (tmp_path / "work" / "sub" / "file").exists() and len(list(temporary.iterdir())) == 1
    with temporary_files(), held(tmp_path / "work") as folder:
        assert list(folder.iterdir()) == [] and len(list(temporary.iterdir())) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary"] and list(temporary.iterdir()) == []


def test_the_folders_of_a_living_process_stay(temporary):
    with temporary_files():
        mine = Path(tempfile.gettempdir())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(temporary))
            with temporary_files():
                assert mine.exists() and len(list(temporary.iterdir())) == 2
    assert list(temporary.iterdir()) == []


def test_the_second_of_two_waits_and_says_so(tmp_path):
    waiting, order = threading.Event(), []

    def second() -> None:
        with held(tmp_path / "work", waits=waiting.set):
            order.append("second")

    with held(tmp_path / "work") as folder:
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
        os.replace(folder, tmp_path / "result")
    thread.join(10)
    assert order == ["first", "second"]
    assert [path.name for path in tmp_path.iterdir() if path.name != "temporary"] == ["result"]


def test_a_signal_before_the_lock_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_: object) -> int:
        (tmp_path / "work").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(scratch, "_lock", interrupted)
    with pytest.raises(KeyboardInterrupt), held(tmp_path / "work"):
        pass
    assert not (tmp_path / "work").exists()


def test_a_folder_for_the_user_stays(temporary):
    with temporary_files():
        kept = lasting_folder()
    assert kept.parent == temporary and kept.exists()


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    class Usage:
        free = 0

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    with pytest.raises(OSError, match="No space left on device"), held(tmp_path / "work"):
        raise ValueError("no more archived files")
    assert not (tmp_path / "work").exists()
