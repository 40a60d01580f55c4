"""Strips of an image between what pads it, in scratch memory: windows of some rows of results are read from each."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.copies import moved
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, Strip


def opened(s: Strip) -> Iterator[str]:
    """The steps that make rows of windows whole vectors, and the loop over strips."""
    if s.short:
        yield f"pad(k, {LANES})"
    if s.taps == 1:
        yield "drop(ky)"
    yield f"split(y, yi, {s.tall}{', early' * (s.rows % s.tall > 0)})"


def filled(s: Strip) -> Iterator[str]:
    """The steps that fill strips."""
    yield "compute_at(P, y)"
    if s.padded:
        yield from ("stage(edge, b, eg, r)", *_padding("f", s.left + s.whole + s.right))
    if s.whole:
        yield from moved("a", "cx", "ca", s.whole, LANES)


def _padding(loop: str, size: int) -> Iterator[str]:
    """A loop that writes a number so many times."""
    lanes, vector = min(size, LANES), f"{loop}v"
    yield from (
        f"split({loop}, {vector}, {size})",
        f"split({vector}, {loop}l, {lanes}{', early' * (size % lanes > 0)})",
    )
    yield f"spread(eg, {loop}, {loop}q, q, i8, {loop}l)"
    turns = size // lanes
    if size % lanes and turns:
        yield f"cut({vector}, {turns}, e)"
    yield f"select({loop}, mve)"
    if turns > 1:
        yield f"hardware_loop({vector})"
    yield f"block({loop})"
