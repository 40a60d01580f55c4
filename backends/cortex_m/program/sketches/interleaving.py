"""Sketches of planes that become channels, on cores with vectors.

A vector of each plane is interleaved with those of the others step by step: runs of one element each become runs of
two, then of four. Runs as long as a word are scattered over the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS

WORD = 4
"""Bytes of what is scattered at the cost of one element."""


@dataclass(frozen=True)
class InterleavedPlanes:
    """Planes on their way to channels.

    Args:
        along: the loop over the elements of a plane.
        across: the loop over planes, right inside of it.
        extent: elements of a plane.
        planes: how many there are.
        dtype: of an element.
    """

    along: str
    across: str
    extent: int
    planes: int
    dtype: str

    @property
    def lanes(self) -> int:
        return REGISTERS["q"] // BYTES[self.dtype]

    @property
    def runs(self) -> list[int]:
        """Elements of a run at each step."""
        return [run for run in (1, 2, 4) if run * BYTES[self.dtype] <= WORD]


def interleaved(p: InterleavedPlanes) -> Iterator[str]:
    """The steps of planes whose elements fill vectors."""
    names, source, around = {run: f"{p.along}v{run}" for run in p.runs}, "out", p.along
    yield f"split({p.along}, {p.along}l, {p.lanes})"
    yield f"reorder({p.along}l, {p.across})"
    for run in reversed(p.runs):
        inner = f"{p.along}u{run}"
        yield from (f"split({around}, {inner}, 1)", f"stage({source}, {around}, {names[run]}, scratch)")
        source, around = names[run], inner
    yield from (f"drop({p.along}u{run})" for run in p.runs)
    for run in p.runs[:-1]:
        yield from _doubled(p, f"{names[run]}0", run)
    yield from _scattered(p, f"{names[p.runs[-1]]}0", p.runs[-1])
    for run, name in names.items():
        yield from _in_runs(p, name, run)
    yield f"select({p.along}, mve)"


def _doubled(p: InterleavedPlanes, loop: str, run: int) -> Iterator[str]:
    """A copy of all runs to runs twice as long, each of which becomes two instructions on whole vectors.

    Its second half comes first: where that is a second half already, its vector is taken as it is.
    """
    pair, half, element = (f"{loop}{letter}" for letter in "phe")
    yield f"split({loop}, {pair}, {2 * run * p.planes})"
    yield f"split({pair}, {half}, {2 * run})"
    if run > 1:
        yield f"split({half}, {element}, {run})"
    yield f"reorder({loop}, {pair})"
    yield f"reorder({loop}, {half})"
    yield f"write_out({half}, backward)"
    yield f"write_out({pair})"


def _scattered(p: InterleavedPlanes, loop: str, run: int) -> Iterator[str]:
    yield f"split({loop}, {loop}w, {p.planes * run})"
    yield f"split({loop}w, {loop}e, {run})"
    yield f"reorder({loop}, {loop}w)"


def _in_runs(p: InterleavedPlanes, name: str, run: int) -> Iterator[str]:
    """Vectors of runs that lie apart in the result."""
    yield f"divide_dim({name}, 0, {p.planes * run})"
    if run > 1:
        yield f"divide_dim({name}, 1, {run})"
    yield f"reorder_dims({name}, {'d102' if run > 1 else 'd10'})"
    if run > 1:
        yield f"merge_dims({name}, 1)"
    yield f"place({name}, q)"
