"""Spaces of nests: what their first schedules are, and which are legal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from tosaic.backends.cortex_m.nest.block import AS_BEST, Issue
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.digest import code_digest
from tosaic.backends.target import Pipeline
from tosaic.support.cache import remembered
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Variant

ISSUES = ("best", "longest", "fewest", "best of 8", "longest of 8", "fewest of 8")
"""The orders of a turn: a priority of the list scheduler, and from how few instructions it chooses."""


def remembered_guess(kind: str, problem: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """What this code guesses for a problem, plain data as JSON has it; from an earlier process where one has."""
    return remembered(f"guesses/{kind}", [code_digest("cortex_m", "simulators"), repr(problem)], compute)


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


def cheapest_first(
    kernel: Callable[[Any, Nest, None], Any],
    what: Any,
    knobs: Mapping[str, Mapping[str, tuple[Choice, ...]]],
    pipeline: Pipeline | None,
) -> Sequence[Variant]:
    """Variants with knobs, by the fewest cycles that `counts` of a kernel promise, then the least code.

    Args:
        kernel: what `verified` makes of the problem `what`.
    """

    def guess(name: str) -> list | None:
        found = []
        for chosen in itertools.product(*knobs[name].values()):
            each = dict(zip(knobs[name], chosen, strict=True))
            with suppress(BackendError):
                counts = replace(verified(kernel, what, name, assigned(each)), pipeline=pipeline).counts()
                found.append([counts["cycles"], counts["code"], each])
        return min(found, key=lambda each: each[:2], default=None)

    guesses = {name: remembered_guess(name, (what, knobs[name], pipeline), partial(guess, name)) for name in knobs}
    found = sorted((best[:2], name) for name, best in guesses.items() if best)
    legal = partial(verified, kernel, what)
    return [beginning_with(guesses[name][2], name, knobs[name], partial(legal, name)) for _, name in found]


@lru_cache(maxsize=8192)
def verified(
    kernel: Callable[[Any, Nest, None], Any], what: Any, variant: str, knobs: tuple[tuple[str, Choice], ...]
) -> Any:
    """The kernel of an assignment, its nest `what.scheduled(variant, knobs)`, its instructions in the order of their
    meaning.

    Raises:
        BackendError: it is not legal.
    """
    made = kernel(what, what.scheduled(variant, dict(knobs)), None)
    made.verify()
    return made


def assigned(knobs: Mapping[str, Choice]) -> tuple[tuple[str, Choice], ...]:
    """An assignment as a schedule holds it."""
    return tuple(sorted(knobs.items()))


def issued(nest: Nest, stage: str, issue: Choice) -> Nest:
    """The nest with a stage's block ordered as one of `ISSUES` says."""
    priority, _, window = str(issue).partition(" of ")
    found = Issue(priority, int(window)) if window else Issue(priority)
    return nest.apply("issue", stage, *found) if found != AS_BEST else nest
