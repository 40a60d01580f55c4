"""What walks over a tree found, kept where they found it: trees share parts, and parts never change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

_OfT = TypeVar("_OfT")
_FoundT = TypeVar("_FoundT")


def remembered(function: Callable[[_OfT], _FoundT]) -> Callable[[_OfT], _FoundT]:
    """A function of a statement, or a program, that keeps the result."""
    name = f"{function.__module__}.{function.__name__}"

    @wraps(function)
    def found(of: _OfT) -> _FoundT:
        try:
            return of.__dict__[name]
        except KeyError:
            kept = of.__dict__[name] = function(of)
            return kept

    return found
