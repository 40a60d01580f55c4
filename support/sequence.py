"""Calls one behind the other, each of which finds the states that the one before it has left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_sequence(
    step: Callable[[list[T]], Sequence[T]], samples: Sequence[Sequence[T]], states: Sequence[T]
) -> Iterator[tuple[list[T], list[T]]]:
    """What each call takes and gives, states included.

    Args:
        step: takes inputs and states, and gives outputs and as many states.
        states: before the first call.
    """
    for sample in samples:
        taken = [*sample, *states]
        given = list(step(taken))
        yield taken, given
        states = given[len(given) - len(states) :]
