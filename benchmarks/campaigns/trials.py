"""Trials in a process of their own, which may die or hang, and what became of each."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import click

_T = TypeVar("_T")
_PER_PROCESS = 50
_SECONDS = 1800.0


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

    def print_counts(self) -> None:
        """How many there were of each kind."""
        click.echo(", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common()))


def run_all(trial: Callable[[_T], Outcome], subjects: Iterable[_T]) -> Iterator[tuple[_T, Outcome]]:
    """The outcome of each subject, a seed say, in order; a process that dies or takes too long is an outcome too."""
    pool = _pool()
    try:
        for subject in subjects:
            try:
                outcome = pool.submit(trial, subject).result(_SECONDS)
            except BrokenProcessPool:
                outcome, pool = Outcome("died", "its process ended", True), _pool()
            except TimeoutError:
                _end(pool)
                outcome, pool = Outcome("hangs", f"no end within {_SECONDS:g} s", True), _pool()
            yield subject, outcome
    finally:
        _end(pool)


def _pool() -> ProcessPoolExecutor:
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, spawn, initializer=_end_with_parent, max_tasks_per_child=_PER_PROCESS)


def _end_with_parent() -> None:
    """Let this process end when the campaign does, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _end(pool: ProcessPoolExecutor) -> None:
    processes = list(pool._processes.values())
    for process in processes:
        process.kill()
    pool.shutdown(wait=False)
    for process in processes:
        process.join()
