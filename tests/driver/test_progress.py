"""What a tuning run shows while it works."""

from __future__ import annotations

import io
import time

from rich.console import Console

from tosaic.terminal import progress as shown_progress
from tosaic.terminal.progress import Stations, durations, keep_durations, tasks_table, tuning_line
from tosaic.tuner.progress import Progress, TaskProgress


def shown(renderable) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(renderable)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def progress(**changes) -> Progress:
    tasks = [
        TaskProgress("pool 1x1x64", 1.0, 3, 900.0, 900.0),
        TaskProgress("conv2d 1x8x8x64", 4.0, 40, 3000.0, 2000.0),
        TaskProgress("add 1x8x8x64", 1.0, 0, None, None),
    ]
    state = {"task": "pool 1x1x64", "done": 50, "total": 200, "reused": 10, "failed": {"slow": 3},
             "inference": 8900.0, "seconds": 20.0, "tasks": tasks}  # fmt: skip
    return Progress(**{**state, **changes})


def test_the_costliest_tasks_come_first_with_their_best_and_gain():
    rows = [line.split() for line in shown(tasks_table(progress()))]
    assert rows == [
        ["task", "runs", "trials", "first", "best", "gain"],
        ["conv2d", "1x8x8x64", "4", "40", "3,000", "2,000", "1.50x"],
        [">", "pool", "1x1x64", "1", "3", "900", "900", "1.00x"],
        ["add", "1x8x8x64", "1", "0", "-", "-", "-"],
    ]


def test_a_large_model_does_not_fill_the_screen():
    tasks = [TaskProgress(f"task{i}", 1.0, 1, float(i), float(i)) for i in range(60)]
    rows = shown(tasks_table(progress(tasks=tasks)))
    assert len(rows) == 13 and "task59" in rows[1]


def test_the_line_tells_how_long_it_will_take():
    (line,) = shown(tuning_line(progress()))
    assert line == "tune 50/200  10 from records  inference 8,900  3 slow  20 s, 75 s left"
    (line,) = shown(tuning_line(progress(done=10, inference=None, failed={})))
    assert line == "tune 10/200  10 from records  20 s"


def test_a_build_tells_how_long_it_will_take(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(shown_progress.time, "perf_counter", lambda: clock[0])
    stations = Stations(quiet=True, before={"capture": 2.0, "prove": 10.0, "tune": 500.0, "write": 4.0})
    assert stations.seconds_left() is None
    with stations.station("capture"):
        clock[0] += 1
        assert stations.seconds_left() == 1 + 10 + 4
        clock[0] += 3  # twice as long as before
    with stations.station("prove"):
        assert stations.seconds_left() == 20 + 8
        assert shown(stations) == ["prove ...  (capture 4 s)  about 28 s left"]
        clock[0] += 60
        assert 4 < (stations.seconds_left() or 0) < 8 * 2
    with stations.station("tune"):
        assert (stations.seconds_left() or 0) > 4  # what comes after
    with stations.station("write"):
        clock[0] += 100
    assert stations.seconds_left() == 0


def test_where_there_is_no_terminal_a_line_comes_now_and_then(monkeypatch):
    written = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr(shown_progress, "stderr", written)
    monkeypatch.setattr(shown_progress, "_SILENCE", 0.01)
    stations = Stations()

    def said(line: str) -> None:
        ends = time.monotonic() + 10
        while line not in written.file.getvalue():  # type: ignore[attr-defined]
            assert time.monotonic() < ends
            time.sleep(0.01)

    with stations.live():
        with stations.station("capture"):
            said("capture ...\n")
        with stations.station("tune"):
            stations.tuning(progress())
            said("tune 50/200  10 from records  inference 8,900")
        stations.say_gain("cycles")
    assert "tuned kernels: from 12,900 to 8,900 cycles with memory\n" in written.file.getvalue()  # type: ignore[attr-defined]


def test_durations_of_the_last_build_are_known_to_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(shown_progress.platformdirs, "user_cache_dir", lambda _: str(tmp_path / "cache"))
    assert durations("net") == {}
    keep_durations("net", {"capture": 2.0})
    keep_durations("other", {"capture": 3.0})
    assert durations("net") == {"capture": 2.0} and durations("new") == {"capture": 3.0}
    (tmp_path / "cache" / "durations.json").write_text("{damaged")
    assert durations("net") == {}
