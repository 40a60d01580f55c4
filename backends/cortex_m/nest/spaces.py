"""Spaces of nests: what their first schedules are, and which are legal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.program.list_scheduler import AS_BEST, Issue
from tosaic.backends.digest import code_digest
from tosaic.support.cache import remembered
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Variant

ISSUES = ("best", "longest", "fewest", "best of 8", "longest of 8", "fewest of 8")
"""The orders of a turn: a priority of the list scheduler, and from how few instructions it chooses."""


def remembered_guess(kind: str, problem: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """What this code guesses for a problem, plain data as JSON has it; from an earlier process where one has."""
    return remembered("guesses", code_digest("cortex_m", "simulators"), [kind, repr(problem)], compute)


def beginning_with(
    first: Mapping[str, Choice],
    name: str,
    knobs: Mapping[str, tuple[Choice, ...]],
    verify: Callable[[tuple[tuple[str, Choice], ...]], object],
) -> Variant:
    """The variant whose first schedule is `first`; legal is what `verify` does not refuse with a BackendError."""
    ordered = {k: (first[k], *(choice for choice in choices if choice != first[k])) for k, choices in knobs.items()}

    def legal(assignment: Mapping[str, Choice]) -> bool:
        try:
            verify(assigned(assignment))
        except BackendError:
            return False
        return True

    return Variant(name, ordered, legal)


def assigned(knobs: Mapping[str, Choice]) -> tuple[tuple[str, Choice], ...]:
    """An assignment as a schedule holds it."""
    return tuple(sorted(knobs.items()))


def issued(nest: Nest, stage: str, issue: Choice) -> Nest:
    """The nest with a stage's block ordered as one of `ISSUES` says."""
    priority, _, window = str(issue).partition(" of ")
    found = Issue(priority, int(window)) if window else Issue(priority)
    return nest.apply("issue", stage, *found) if found != AS_BEST else nest
