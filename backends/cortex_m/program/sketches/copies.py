"""Copies of constants in scratch memory for cores with vectors, so that all that reads them waits once."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.copied_rows import TOGETHER
from tosaic.backends.cortex_m.program.tree import REGISTERS
from tosaic.backends.target import Core

_VECTORS = 4
"""That an iteration loads before it stores them: what is stored right behind its load waits."""


def copied(
    constant: str, loop: str, copy: str, size: int, lanes: int, isa: str = "mve", widened: str = ""
) -> Iterator[str]:
    """The steps that copy what an iteration of a loop reads of a constant of one dimension, by whole vectors.

    Args:
        size: elements of that, as many as there are in a vector, or more.
        lanes: elements of a vector.
        widened: the last argument of a step that stages the constant, where it becomes another type.
    """
    yield f"stage({constant}, {loop}, {copy}, scratch{widened})"
    yield from moved(constant, f"{copy}0", copy, size, lanes, isa, widened)


def moved(
    source: str,
    loop: str,
    own: str,
    size: int,
    lanes: int,
    isa: str = "mve",
    widened: str = "",
    vectors: int = _VECTORS,
) -> Iterator[str]:
    """The steps of a loop that copies so many elements, by vectors as far as there are whole ones.

    Args:
        own: what new names begin with.
        vectors: that an iteration moves.
    """
    iterations = (size // lanes - (size % lanes > 0)) // vectors
    whole = max(iterations, 0) * vectors * lanes
    if 0 < whole < size:
        yield f"cut({loop}, {whole})"
    if whole:
        yield from _vectors(source, loop, own, vectors * lanes, lanes, widened)
        yield from (f"select({loop}, {isa})", f"{'hardware_loop' if iterations > 1 else 'block'}({loop})")
    if whole < size:
        last, own = (f"{loop}_t", f"{own}r") if whole else (loop, own)
        yield from _vectors(source, last, own, size - whole, lanes, widened)
        yield from (f"select({last}, {isa})", f"block({last})")


def _vectors(source: str, loop: str, own: str, size: int, lanes: int, widened: str) -> Iterator[str]:
    """Iterations that move so many elements each, vector by vector."""
    vector, lanes = loop, min(lanes, size)
    if size > lanes:
        vector = f"{own}v"
        yield f"split({loop}, {vector}, {size})"
    yield from (
        f"split({vector}, {own}l, {lanes}{', early' * (size % lanes > 0)})",
        f"stage({source}, {vector}, {own}q, q{widened})",
    )


def copied_elements(source: str, loop: str, size: int, width: int, core: Core, down: int = 0) -> Iterator[str]:
    """The steps of a loop that copies so many elements of `width` bytes, by vectors, or by words.

    Args:
        down: where what is copied may lie over the copy, the bytes from that to it; else 0.
    """
    lanes = REGISTERS["q"] // width
    if core.mve:
        if not 0 < down < size * width:
            yield from moved(source, loop, loop, size, lanes)
        elif size % lanes == 0 and down >= REGISTERS["q"]:
            yield from moved(source, loop, loop, size, lanes, vectors=min(_VECTORS, down // REGISTERS["q"]))
    elif size * width >= TOGETHER:
        yield f"words({loop})"
