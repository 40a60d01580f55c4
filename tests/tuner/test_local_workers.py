import os
import subprocess
import time
from pathlib import Path

import pytest
from synthetic import Deadly, Line, Slow, analytic, broken, process

from tosaic.support.errors import Error
from tosaic.tuner.measure import LocalWorkers

TASK = Line("line")


def _schedules(*xs):
    found = {schedule["x"]: schedule for schedule in TASK.space.schedules()}
    return [found[x] for x in xs]


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def workers():
    with LocalWorkers(2, seconds_per_trial=0.5) as pool:
        yield pool


def test_measurements_come_back_in_order(workers):
    batches = [_schedules(3, 1, 2), _schedules(30), [], _schedules(*range(20, 30))]
    pending = [workers.submit(analytic, TASK, batch) for batch in batches]
    assert [batch.result() for batch in pending] == [analytic(TASK, batch) for batch in batches]


def test_a_candidate_that_kills_the_worker_is_singled_out(workers):
    batch = _schedules(*range(8))
    answers = workers.submit(Deadly(), TASK, batch).result()
    assert [answer.status for answer in answers] == ["ok"] * 5 + ["crash"] + ["ok"] * 2
    assert "SIGSEGV" in answers[5].message
    assert answers[6:] == analytic(TASK, batch[6:])


def test_a_candidate_that_hangs_is_singled_out(workers):
    answers = workers.submit(Deadly(), TASK, _schedules(8, 9)).result()
    assert [answer.status for answer in answers] == ["ok", "late"]
    assert workers.submit(analytic, TASK, _schedules(1)).result() == analytic(TASK, _schedules(1))


def test_a_worker_starts_when_there_is_a_batch_for_it_and_stays():
    with LocalWorkers(2) as workers:
        one, again = (workers.submit(process, TASK, _schedules(1)).result()[0].message for _ in range(2))
        pending = [workers.submit(process, TASK, _schedules(1)) for _ in range(2)]
        both = {batch.result()[0].message for batch in pending}
    assert one == again and one in both and len(both) == 2


def test_a_worker_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setenv("NO_WORKER_THAT_WAITS_HAS_THIS", "1")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with LocalWorkers(1) as workers, pytest.raises(Error, match="a measuring process did not start") as error:
        workers.submit(analytic, TASK, _schedules(1)).result()
    assert "exit code 1" in error.value.why


def test_a_worker_that_takes_too_long_to_start_is_an_error(monkeypatch):
    monkeypatch.setenv("NO_WORKER_THAT_WAITS_HAS_THIS", "1")
    monkeypatch.setattr("tosaic.tuner.measure.START_SECONDS", 0.0)
    with LocalWorkers(1) as workers, pytest.raises(Error, match="did not start within 0 s"):
        workers.submit(analytic, TASK, _schedules(1)).result()


def test_an_error_of_the_measure_itself_reaches_the_caller(workers):
    with pytest.raises(FileNotFoundError, match="qemu-system-arm") as caught:
        workers.submit(broken, TASK, _schedules(1, 2)).result()
    assert "in broken" in caught.value.__notes__[0]
    assert workers.submit(analytic, TASK, _schedules(1)).result() == analytic(TASK, _schedules(1))


def test_a_measure_that_cannot_travel_is_named(workers):
    with pytest.raises(Error, match="task `line` cannot be sent to a worker process"):
        workers.submit(lambda task, schedules, best: [], TASK, _schedules(1))


def test_both_workers_work_at_once(tmp_path):
    with LocalWorkers(2) as workers:
        for pending in [workers.submit(analytic, TASK, _schedules(1)) for _ in range(2)]:
            pending.result()
        started = time.monotonic()
        slow = Slow(tmp_path / "log", seconds=0.1)
        for pending in [workers.submit(slow, TASK, _schedules(*range(10))) for _ in range(2)]:
            pending.result()
        assert time.monotonic() - started < 1.8


def grandchild(task, schedules, best=None):
    with subprocess.Popen(["sleep", "600"]) as process:
        Path(task.key).write_text(f"{os.getpid()} {process.pid}")
    return []


def test_closing_ends_the_workers_and_all_they_started(tmp_path):
    task = Line(str(tmp_path / "pids"))
    with LocalWorkers(1) as workers:
        workers.submit(grandchild, task, _schedules(1))
        for _ in range(200):
            time.sleep(0.05)
            if (tmp_path / "pids").exists() and (tmp_path / "pids").read_text():
                break
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(_alive(pid) for pid in pids)
    time.sleep(0.1)
    assert len(pids) == 2 and not any(_alive(pid) for pid in pids)
