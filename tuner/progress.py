"""What a tuning run tells while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskProgress:
    """The state of one task.

    Args:
        weight: how often it runs in one inference.
        trials: that have a record.
        first, best: cost of its first success and of its best; None until it has one.
    """

    name: str
    weight: float
    trials: int
    first: float | None
    best: float | None


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
        tasks: each task, in the order of the model.
    """

    task: str
    done: int
    total: int
    reused: int
    failed: Mapping[str, int]
    inference: float | None
    seconds: float
    tasks: Sequence[TaskProgress] = ()

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None while nothing was measured."""
        measured = self.done - self.reused
        return self.seconds * (self.total - self.done) / measured if measured else None


Listener = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Nobody listens."""
