"""Trials in a process of their own, which may die or hang, and what became of each."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import click

_PER_PROCESS = 50
_SECONDS = 600.0


@dataclass(frozen=True)
class Outcome:
    """What became of a trial: `kind` is one word, and `fault` says whether it is one of tosaic's."""

    kind: str
    detail: str = ""
    fault: bool = False


class Here:
    """An executor of batches that measures in this process, when it is asked."""

    def submit(self, measure: Any, task: Any, schedules: Any, best: Any = None, /) -> Any:
        return SimpleNamespace(result=lambda: measure(task, schedules, best))


@dataclass
class Tally:
    """Outcomes by kind; the faults one by one on stdout, the others on stderr."""

    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def note(self, name: str, outcome: Outcome) -> None:
        """Count an outcome and print it at once."""
        self.kinds[outcome.kind] += 1
        click.echo(f"{name}: {outcome.kind}: {outcome.detail}", err=not outcome.fault)
        if outcome.fault:
            self.faults.append(name)

    def close(self) -> None:
        """Print the counts; exit with 1 where there were faults."""
        click.echo(", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common()))
        if self.faults:
            raise SystemExit(1)


def run_all(trial: Callable[[int], Outcome], numbers: Iterable[int]) -> Iterator[tuple[int, Outcome]]:
    """The outcome of each number, in order; a process that dies or takes too long is an outcome too."""
    pool = _pool()
    try:
        for number in numbers:
            try:
                outcome = pool.submit(trial, number).result(_SECONDS)
            except BrokenProcessPool:
                outcome, pool = Outcome("died", "its process ended", True), _pool()
            except TimeoutError:
                _end(pool)
                outcome, pool = Outcome("hangs", f"no end within {_SECONDS:g} s", True), _pool()
            yield number, outcome
    finally:
        _end(pool)


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=_PER_PROCESS)


def _end(pool: ProcessPoolExecutor) -> None:
    for pid in list(pool._processes):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pool.shutdown(wait=False)
