"""What a build or a tuning run is at while it works, live on stderr."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec
import platformdirs
from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from tosaic.support.garbage import give_back
from tosaic.terminal.console import stderr
from tosaic.tuner.measurement import Objective
from tosaic.tuner.progress import Progress

_TASKS_SHOWN = 12


_TUNE = "tune"
_KEPT = 100
_SILENCE = 20.0  # seconds
UNITS = {"cycles": "cycles with memory", "core-cycles": "cycles (model)", "instructions": "instructions"}


class Stations:
    """Names the station at work and keeps the seconds each one took, in `seconds` by name.

    Args:
        before: the seconds that each took in an earlier build, from which this one's are guessed.
    """

    def __init__(self, quiet: bool = False, before: Mapping[str, float] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._before = {name: seconds for name, seconds in (before or {}).items() if name != _TUNE}
        self._quiet = quiet
        self._live: Live | None = None
        self._name, self._start, self._works = "", 0.0, False
        self._tuned: Progress | None = None

    @contextmanager
    def station(self, name: str) -> Iterator[None]:
        """Time the body under `name`, show it while it works, and give back the memory that it freed."""
        self._name, self._start, self._works = name, time.perf_counter(), True
        self._show(Spinner("line", self))  # asked anew for every frame
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - self._start, 3)
            self._works = False
            give_back()

    def seconds_left(self) -> float | None:
        """Until the last station is done, but for the one at work if that tunes; None where nothing is known.

        What is to come takes as much longer or shorter than before as what is done.
        """
        at_work = time.perf_counter() - self._start if self._works else 0.0
        expected = self._before.get(self._name, 0.0) if self._works else 0.0
        done = sum(seconds for name, seconds in self.seconds.items() if name in self._before) + min(at_work, expected)
        were = sum(seconds for name, seconds in self._before.items() if name in self.seconds) + min(at_work, expected)
        if not were:
            return None
        to_come = sum(seconds for name, seconds in self._before.items() if name not in (*self.seconds, self._name))
        return done / were * to_come + max(0.0, done / were * expected - at_work)

    def __rich__(self) -> Text:
        taken = ", ".join(f"{station} {seconds:.0f} s" for station, seconds in self.seconds.items() if seconds >= 1)
        left = self.seconds_left()
        parts = [f"{self._name} ...", f"({taken})" if taken else "", f"about {left:.0f} s left" if left else ""]
        return Text("  ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis")

    @contextmanager
    def live(self) -> Iterator[Stations]:
        """Hold the live line open; it is erased at the end. Where stderr is no terminal, print a line now and then."""
        if self._quiet or not stderr.is_terminal:
            with nullcontext() if self._quiet else self._lines():
                yield self
            return
        with Live(Text(), console=stderr, transient=True, refresh_per_second=8) as self._live:
            try:
                yield self
            finally:
                self._live = None

    @contextmanager
    def _lines(self) -> Iterator[None]:
        """What is at work, a line each time that so long nothing was said."""
        done = threading.Event()

        def tell() -> None:
            while not done.wait(_SILENCE):
                tuning = self._name == _TUNE and self._works and self._tuned
                stderr.print(tuning_line(self._tuned) if tuning and self._tuned else self, soft_wrap=True)

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()

    def say_gain(self, objective: Objective) -> None:
        """Print what tuning has gained."""
        tasks = self._tuned.tasks if self._tuned else ()
        known = [(task.weight, task.first, task.best) for task in tasks if task.first is not None and task.best]
        first, best = (sum(row[0] * (row[column] or 0) for row in known) for column in (1, 2))
        if known:
            stderr.print(f"tuned kernels: from {first:,.0f} to {best:,.0f} {UNITS[objective]}", highlight=False)

    def tuning(self, progress: Progress) -> None:
        """A tuner's listener: the tasks that cost most, and the state of the whole run."""
        self._tuned = progress
        rest = self.seconds_left()
        then = [Text(f"about {rest:.0f} s after that")] if rest else []
        self._show(Group(tasks_table(progress), tuning_line(progress), *then))

    def _show(self, shown: RenderableType) -> None:
        if self._live is not None:
            self._live.update(shown)


def durations(build: str) -> Mapping[str, float]:
    """What each station took in the last build of that name, else in the last of any; empty without one."""
    known = _known_durations()
    return known.get(build) or next(reversed(known.values()), {})


def keep_durations(build: str, seconds: Mapping[str, float]) -> None:
    """Remember what each station took, for the next build."""
    known = {name: taken for name, taken in _known_durations().items() if name != build} | {build: dict(seconds)}
    path = _durations_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
        file.write(msgspec.json.encode(dict(list(known.items())[-_KEPT:])))
    os.replace(file.name, path)


def _known_durations() -> dict[str, dict[str, float]]:
    try:
        return msgspec.json.decode(_durations_file().read_bytes(), type=dict[str, dict[str, float]])
    except (OSError, msgspec.DecodeError):
        return {}


def _durations_file() -> Path:
    return Path(platformdirs.user_cache_dir("tosaic"), "durations.json")


def tasks_table(progress: Progress) -> Table:
    """The tasks that take most of an inference; `>` marks the one whose batch came back last."""
    table = Table("", "task", *(Column(name, justify="right") for name in ("runs", "trials", "first", "best", "gain")),
                  box=None)  # fmt: skip
    costly = sorted(progress.tasks, key=lambda task: -task.weight * (task.best or 0))[:_TASKS_SHOWN]
    for task in costly:
        costs = ["-", "-", "-"]
        if task.first is not None and task.best is not None:
            costs = [f"{task.first:,.0f}", f"{task.best:,.0f}", f"{task.first / task.best:.2f}x"]
        mark = ">" if task.name == progress.task else ""
        table.add_row(mark, task.name, f"{task.weight:g}", f"{task.trials}", *costs)
    return table


def tuning_line(progress: Progress) -> Text:
    """Trials, the best inference so far, what failed, and the time."""
    failed = ", ".join(f"{count} {status}" for status, count in progress.failed.items())
    left = progress.seconds_left
    parts = [
        f"tune {progress.done}/{progress.total}",
        f"{progress.reused} from records" if progress.reused else "",
        f"inference {progress.inference:,.0f}" if progress.inference is not None else "",
        failed,
        f"{progress.seconds:.0f} s" + (f", {left:.0f} s left" if left is not None else ""),
    ]
    return Text("  ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis")
