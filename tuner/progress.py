"""What a tuning run tells while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The state of a tuning run after a batch.

    Args:
        task: name of the task whose batch came back; empty at the start.
        done: trials that count towards the budget, old records included.
        total: `done` at the end, if no space is exhausted before.
        measured: trials of this run.
        reused: records found.
        failed: trials of this run that failed, by status.
        best: cost of the best schedule of `task`; None while it has none.
        inference: sum of weight * best cost over all tasks; None until each has one.
        tasks_exhausted: tasks whose whole space is measured.
        tasks: number of different tasks.
        seconds: since the start.
    """

    task: str
    done: int
    total: int
    measured: int
    reused: int
    failed: Mapping[str, int]
    best: float | None
    inference: float | None
    tasks_exhausted: int
    tasks: int
    seconds: float


Listener = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Nobody listens."""
