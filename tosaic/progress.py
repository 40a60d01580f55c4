"""What a build or a tuning run is at while it works, live on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from tosaic.console import stderr
from tosaic.tuner.progress import Progress

_TASKS_SHOWN = 12


class Stations:
    """Names the station at work and keeps the seconds each one took, in `seconds` by name."""

    def __init__(self, quiet: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._quiet = quiet
        self._live: Live | None = None

    @contextmanager
    def station(self, name: str) -> Iterator[None]:
        """Time the body under `name`, and show it while it works."""
        start = time.perf_counter()
        done = ", ".join(f"{station} {seconds:.0f} s" for station, seconds in self.seconds.items() if seconds >= 1)
        self._show(Spinner("line", Text(f"{name} ..." + (f"  ({done})" if done else ""))))
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)

    @contextmanager
    def live(self) -> Iterator[Stations]:
        """Hold the live line open; it is erased at the end."""
        if self._quiet or not stderr.is_terminal:
            yield self
            return
        with Live(Text(), console=stderr, transient=True, refresh_per_second=8) as self._live:
            try:
                yield self
            finally:
                self._live = None

    def tuning(self, progress: Progress) -> None:
        """A tuner's listener: the tasks that cost most, and the state of the whole run."""
        self._show(Group(tasks_table(progress), tuning_line(progress)))

    def _show(self, shown: RenderableType) -> None:
        if self._live is not None:
            self._live.update(shown)


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
