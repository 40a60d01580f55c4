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
        reused: records found.
        failed: trials of this run that failed, by status.
        inference: sum of weight * best cost over all tasks; None until each has one.
        seconds: since the start.
    """

    task: str
    done: int
    total: int
    reused: int
    failed: Mapping[str, int]
    inference: float | None
    seconds: float


Listener = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Nobody listens."""
