"""What windows that overlap have in common: in which order their elements are reduced."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

Lines = tuple[int, ...]
Part = tuple[Lines, Lines]
"""Rows and columns: what stands in all of them, reduced."""


class Made(NamedTuple):
    """A part that is loaded, or reduced from two others; what it completes, as the numbers of its rows and columns."""

    part: Part
    halves: tuple[Part, Part] | None


def shared_reductions(down: Sequence[Lines], across: Sequence[Lines]) -> list[Made]:
    """The parts of windows in an order in which all of them can be made, each once.

    Columns are reduced first, which neighbors share, as they share rows. What two neighboring windows have in common is
    reduced apart from what they do not.
    """
    found, known = list[Made](), set[Part]()

    def made(rows: Lines, columns: Lines) -> Part:
        part = rows, columns
        if part not in known:
            known.add(part)
            halves = None
            if len(columns) > 1:
                first, second = _halves(columns, across)
                halves = made(rows, first), made(rows, second)
            elif len(rows) > 1:
                first, second = _halves(rows, down)
                halves = made(first, columns), made(second, columns)
            found.append(Made(part, halves))
        return part

    for column in sorted({place for columns in across for place in columns}):
        for rows, columns in itertools.product(down, across):
            if column not in columns:
                continue
            made(rows, (column,))
            if column == columns[-1]:
                made(rows, columns)
            else:
                part = next(part for part in _halves(columns, across) if column in part)
                made(rows, part[: part.index(column) + 1])
    return found


def _halves(part: Lines, windows: Sequence[Lines]) -> tuple[Lines, Lines]:
    """A window in two, what it shares with its neighbor apart; what is no window, its last apart."""
    if part in windows:
        number = windows.index(part)
        other = windows[number ^ 1] if number ^ 1 < len(windows) else ()
        shared = tuple(each for each in part if each in other)
        rest = tuple(each for each in part if each not in other)
        if shared and rest:
            return (rest, shared) if rest[0] < shared[0] else (shared, rest)
    return part[:-1], part[-1:]
