"""Copies of constants in scratch memory for cores with vectors, so that all that reads them waits once."""

from __future__ import annotations

from collections.abc import Iterator

_VECTORS = 4
"""That a turn loads before it stores them: what is stored right behind its load waits."""


def copied(constant: str, loop: str, copy: str, size: int, lanes: int, isa: str = "mve") -> Iterator[str]:
    """The steps that copy what a turn of a loop reads of a constant of one dimension, by whole vectors.

    Args:
        size: elements of that, as many as there are in a vector, or more.
        lanes: elements of a vector.
    """
    yield f"stage({constant}, {loop}, {copy}, scratch)"
    turns = (size // lanes - (size % lanes > 0)) // _VECTORS
    whole = turns * _VECTORS * lanes
    if 0 < whole < size:
        yield f"cut({copy}0, {whole})"
    if whole:
        yield from _moved(constant, f"{copy}0", copy, _VECTORS * lanes, lanes)
        yield from (f"select({copy}0, {isa})", f"{'hardware_loop' if turns > 1 else 'block'}({copy}0)")
    if whole < size:
        last, own = (f"{copy}0_t", f"{copy}r") if whole else (f"{copy}0", copy)
        yield from _moved(constant, last, own, size - whole, lanes)
        yield from (f"select({last}, {isa})", f"block({last})")


def _moved(constant: str, loop: str, copy: str, size: int, lanes: int) -> Iterator[str]:
    """Turns that move so many elements each, vector by vector."""
    vector = loop
    if size > lanes:
        vector = f"{copy}v"
        yield f"split({loop}, {vector}, {size})"
    yield from (
        f"split({vector}, {copy}l, {lanes}{', early' * (size % lanes > 0)})",
        f"stage({constant}, {vector}, {copy}q, q)",
    )
