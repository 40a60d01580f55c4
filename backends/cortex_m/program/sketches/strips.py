"""Strips of an image between what pads it, in scratch memory: windows of some rows of results are read from each."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.copies import moved
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES, ImageStrip


def opened(s: ImageStrip) -> Iterator[str]:
    """The steps that make rows of windows whole vectors, and the loop over strips.

    Windows that are copied are one row.
    """
    if s.short:
        yield f"pad(k, {LANES})"
    if s.taps[0] == 1 and not s.runs[1]:
        yield "drop(ky)"
    yield f"split(y, yi, {s.tall}{', early' * (s.rows % s.tall > 0)})"
    if s.runs[1]:
        yield from (f"compute_at({name}, y)" for name in "SQP")
        yield from ("fuse(sy, sx)", "fuse(yi, x)") if s.fused else ("drop(yi)",)


def filled(s: ImageStrip) -> Iterator[str]:
    """The steps that fill strips, and copy windows."""
    if not s.runs[1]:
        yield "compute_at(P, y)"
    if s.padded:
        yield from ("stage(edge, b, eg, r)", *_padding("f", s.left + s.whole + s.right))
    if s.whole:
        yield from moved("a", "cx", "ca", s.whole, LANES)
    if s.runs[1]:
        yield from _gathered(s)


def _gathered(s: ImageStrip) -> Iterator[str]:
    """Windows, a run of bytes after the other."""
    run, turn = s.runs[0], s.run
    if run > LANES:
        yield f"split(qk, qkl, {LANES}{', early' * (run % LANES > 0)})"
        turn = "qk"
    yield from (f"stage(P, {turn}, qv, q)", "select(qx, mve)")
    if run < LANES:
        yield "unmask(qx)"
    yield "hardware_loop(qx)"


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
