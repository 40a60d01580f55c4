"""Foreign code in another process: answers, errors, deaths, and who asks."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import pytest

from tosaic.support.child import in_child


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt_parent() -> int:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.5)
    return 1


def refuse() -> None:
    print("what foreign code prints")
    raise ValueError("no such thing")


def ask_twice(answers) -> None:
    answers.put([in_child(os.getppid), in_child(os.getppid), os.getpid()])


def test_one_process_answers_all():
    assert in_child(os.getpid) == in_child(os.getpid) != os.getpid()
    assert in_child(max, 3, 5) == 5


def test_what_it_raises_is_raised_here_and_what_it_prints_is_not(capfd):
    with pytest.raises(ValueError, match="no such thing"):
        in_child(refuse)
    assert in_child(max, 3, 5) == 5
    assert capfd.readouterr() == ("", "")


def test_another_takes_the_place_of_one_that_died():
    before = in_child(os.getpid)
    with pytest.raises(ChildProcessError, match="the process died"):
        in_child(die)
    assert in_child(os.getpid) != before


def test_an_answer_that_nobody_waits_for_answers_nothing_else():
    with pytest.raises(KeyboardInterrupt):
        in_child(interrupt_parent)
    assert in_child(max, 3, 5) == 5


def test_each_thread_and_each_fork_has_its_own():
    own = in_child(os.getpid)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(in_child, os.getpid).result() != own
    fork = get_context("fork")
    answers = fork.SimpleQueue()
    process = fork.Process(target=ask_twice, args=(answers,))
    process.start()
    first, second, child = answers.get()
    process.join()
    assert first == second == child
    assert in_child(os.getpid) == own


def test_its_temporary_files_lie_where_those_of_each_call_do(tmp_path, monkeypatch):
    """The folder of the process that was asked first may be gone when it is asked again."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        assert in_child(tempfile.gettempdir) == in_child(os.getenv, "TMPDIR") == str(tmp_path / name)
