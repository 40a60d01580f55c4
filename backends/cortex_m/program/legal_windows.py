"""What an iteration touches, dimension by dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import under
from tosaic.backends.cortex_m.program.legal import bounds_of, elements_of
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.tree import Buffer, For, RefusedError


class Window(NamedTuple):
    """What an iteration touches along one dimension: of `extent` elements from `base` on, one in each `step`.

    Args:
        dense: whether none of these is left out.
    """

    base: Affine
    extent: int
    step: int
    dense: bool

    @property
    def elements(self) -> int:
        return (self.extent - 1) // self.step + 1

    def number(self, index: Affine) -> Affine:
        """Which of the elements an index is, from the first on."""
        apart = index - self.base
        return Affine(tuple((name, factor // self.step) for name, factor in apart.terms), apart.const // self.step)


def window_of(indices: Sequence[tuple[Affine, Sequence[For]]]) -> Window:
    """The window of some indices, each with the loops inside of the iteration.

    Raises:
        RefusedError: they begin at two places that move apart.
    """
    bases, reached = set[Affine](), set[int]()
    for index, loops in indices:
        inside = [f for f in loops if index[f.var]]
        base = index.at({f.var: 0 for f in inside})
        bases.add(Affine(base.terms))
        reached |= elements_of(
            Affine(tuple(t for t in index.terms if t[0] in {f.var for f in inside}), base.const), inside
        )
    if len(bases) > 1:
        raise RefusedError("two windows of it are in use")
    (outer,) = bases
    first = min(reached)
    step = math.gcd(*(place - first for place in reached)) or 1
    found = Window(outer + first, max(reached) - first + 1, step, dense=False)
    return found._replace(dense=len(reached) == found.elements)


def windows_inside(program: Program, loop: For, b: Buffer, windows: Sequence[Window]) -> None:
    """Guard: what iterations of a loop touch of a buffer lies inside of it, as boxes too.

    Raises:
        RefusedError: conditions keep accesses inside, which say nothing of a whole window.
    """
    outside = next((around for s, around in under(program.body, name=loop.var) if s is loop), ())
    for window, extent in zip(windows, b.shape, strict=True):
        low, high = bounds_of(window.base, (*outside, loop))
        if low < 0 or high + window.extent > extent:
            raise RefusedError(f"a window of `{loop.var}` reaches outside of {b.name}{list(b.shape)}")
