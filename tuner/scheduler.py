"""Which task deserves the next trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

ALPHA = 0.2
WINDOW = 3


@dataclass
class History:
    """What the scheduler knows of one task.

    Args:
        weight: how often the kernel runs in one inference.
        floor: trials every task gets before the scheduler may choose freely.
        trials: trials measured or in flight.
        exhausted: whether its space holds no more.
        curve: (trials measured, best cost) after each batch; infinity while no trial has succeeded.
    """

    weight: float
    floor: int = 0
    trials: int = 0
    exhausted: bool = False
    curve: list[tuple[int, float]] = field(default_factory=list)

    @property
    def best(self) -> float:
        return self.curve[-1][1] if self.curve else math.inf

    @property
    def owed(self) -> int:
        """Trials missing to the floor."""
        return 0 if self.exhausted else max(0, self.floor - self.trials)


Pick = Callable[[Sequence[History]], int | None]
"""The index of the task to try next, None when all are exhausted."""


def gradient(histories: Sequence[History]) -> int | None:
    """The task whose next trial promises to save the most of the whole inference.

    The gradient scheduler of Ansor (arXiv:2006.06762, section 6.2) for the objective sum(weight * best cost), without
    its term for similar tasks, which needs operation counts: the gain of one trial is
    weight * (alpha * recent gain per trial + (1 - alpha) * best / trials).
    Tasks below their floor go first, the one with the fewest trials before the others.
    """
    live = [i for i, history in enumerate(histories) if not history.exhausted]
    owed = [i for i in live if histories[i].owed]
    if owed:
        return min(owed, key=lambda i: (histories[i].trials, -histories[i].weight, i))
    known = [history.best for history in histories if math.isfinite(history.best)]
    worst = max(known, default=1.0)
    return max(live, key=lambda i: (_gain(histories[i], worst), -i), default=None)


def round_robin(histories: Sequence[History]) -> int | None:
    """The task with the fewest trials."""
    live = [i for i, history in enumerate(histories) if not history.exhausted]
    return min(live, key=lambda i: (histories[i].trials, i), default=None)


SCHEDULERS: dict[str, Pick] = {"gradient": gradient, "round-robin": round_robin}
SchedulerName = Literal["gradient", "round-robin"]


def _gain(history: History, worst: float) -> float:
    """Expected gain of one more trial; a task without a success is taken to be as slow as the slowest."""
    best = history.best if math.isfinite(history.best) else worst
    then_trials, then_best = history.curve[max(0, len(history.curve) - 1 - WINDOW)] if history.curve else (0, math.inf)
    now_trials = history.curve[-1][0] if history.curve else 0
    recent = (then_best - best) / (now_trials - then_trials) if now_trials > then_trials else 0.0
    recent = recent if math.isfinite(recent) else 0.0
    return history.weight * (ALPHA * recent + (1 - ALPHA) * best / max(1, history.trials))
