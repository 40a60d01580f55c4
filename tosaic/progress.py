"""One live line while a build or a tuning run works, on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.text import Text

from tosaic.console import stderr
from tosaic.tuner.progress import Progress


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
        self._show(Text(f"{name} ..."))
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
        """A tuner's listener: the trial count, the best inference so far and what failed."""
        failed = ", ".join(f"{count} {status}" for status, count in progress.failed.items())
        parts = [f"tune {progress.done}/{progress.total}"]
        if progress.reused:
            parts.append(f"{progress.reused} from records")
        if progress.inference is not None:
            parts.append(f"inference {progress.inference:,.0f}")
        if progress.task:
            parts.append(progress.task)
        if failed:
            parts.append(failed)
        parts.append(f"{progress.seconds:.0f} s")
        self._show(Text("  ".join(parts), no_wrap=True, overflow="ellipsis"))

    def _show(self, line: Text) -> None:
        if self._live is not None:
            self._live.update(line)
