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
_PER_PROCESS = 250
_SECONDS = 1800.0


@dataclass(frozen=True)
class Outcome:
    """What became of a trial.

    Args:
        kind: one word or two.
        fault: whether it is one of tosaic's.
        subject: what was tried, whose outcomes are counted apart.
    """

    kind: str
    detail: str = ""
    fault: bool = False
    subject: str = field(default="", kw_only=True)


class Here:
    """An executor of batches that measures in this process, when it is asked."""

    def submit(self, measure: Any, task: Any, schedules: Any, best: Any = None, /) -> Any:
        return SimpleNamespace(result=lambda: measure(task, schedules, best))


@dataclass
class Tally:
    """Outcomes by subject and kind; the faults one by one on stdout, the others on stderr."""

    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, name: str, outcome: Outcome) -> None:
        """Count an outcome and print it at once."""
        self.kinds.setdefault(outcome.subject, Counter())[outcome.kind] += 1
        click.echo(
            ": ".join(part for part in (name, outcome.subject, outcome.kind, outcome.detail) if part),
            err=not outcome.fault,
        )
        if outcome.fault:
            self.faults.append(name)

    def print_counts(self) -> None:
        """How many there were of each kind, a line for each subject and one for all."""
        for subject, kinds in self.kinds.items():
            if subject:
                click.echo(f"{subject}: {_listed(kinds)}")
        click.echo(_listed(sum(self.kinds.values(), Counter())))


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


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
