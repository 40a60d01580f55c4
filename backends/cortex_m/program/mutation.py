"""Schedules next to a schedule: one step more, less, elsewhere, or with another argument."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tosaic.backends.cortex_m.program.canonical import same_kernel
from tosaic.backends.cortex_m.program.moves import changed, drawn
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Step, replayed
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core

_KINDS = ("insert", "insert", "change", "change", "remove", "move")


def mutated(program: Program, steps: Sequence[Step], core: Core, rng: random.Random) -> tuple[Step, ...]:
    """Steps of which one is new, gone, elsewhere, or has another argument, by chance, and that make another kernel.

    Raises:
        RefusedError: what was drawn is no such change, or not legal.
    """
    kind, before = rng.choice(_KINDS), tuple(steps)
    place = max(rng.randint(0, len(before)), rng.randint(0, len(before)))  # Steps behind it may be legal no more.
    first, rest, found = before[:place], before[place:], list[Step]()
    if kind == "insert":
        step = drawn(replayed(program, first), rng.choice(list(PRIMITIVES.known().values())), core, rng)
        found = [] if step is None else [*first, step, *rest]
    elif rest and kind == "change":
        step = changed(replayed(program, first), rest[0], core, rng)
        found = [] if step is None else [*first, step, *rest[1:]]
    elif rest:
        to = rng.randint(1, len(rest)) if kind == "move" else len(rest)
        found = [*first, *rest[1:to], *(rest[:1] if kind == "move" else ()), *rest[to:]]
    if not found or same_kernel(replayed(program, tuple(found)), replayed(program, before)):
        raise RefusedError("no step is changed")
    return tuple(found)
