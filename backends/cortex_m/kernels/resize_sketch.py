"""RESIZE with the numbers that its schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.resizing import Nearest, Resizing
from tosaic.backends.cortex_m.program.sketches.movement import written_out
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_UNROLLED = (8, 4, 2, 16, 1)
_HALVES = 8
"""Of a vector."""
_MANY = 20
"""Channels, of which what is left of vectors costs little."""


@dataclass(frozen=True)
class ResizeSketch:
    """Bilinear RESIZE with loops of C.

    Args:
        scales: the forms that the RESCALE may have.
    """

    what: Resizing
    scales: tuple[str, ...]
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def in_halves(self) -> bool:
        """Whether a compiler with vectors of eight halves finds turns for most of them, and no product beyond these."""
        what = self.what
        narrow = what.narrow is not None and what.narrow.factor == 1
        return narrow and (what.channels % _HALVES == 0 or what.channels >= _MANY)

    def program(self) -> Program:
        return self.what.program()

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `unroll`, elements in a turn; `scale`, the form of the RESCALE.

        With MVE the compiler makes vectors of loops of single elements.
        """
        return {"unroll": (1,) if core.mve else _UNROLLED, "scale": self.scales}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        count, what = int(knobs["unroll"]), self.what
        if count > what.row:
            raise RefusedError(f"rows of {what.row} have no turn of {count}")
        yield "place(S, r)"
        if knobs["scale"] == "high":
            yield "rewrite(out, high)"
        if count > 1:
            yield from written_out("i", what.row, count) if what.shared else ()
            yield from written_out("c", what.channels, min(count, what.channels))

    def cost(self, knobs: Knobs) -> float:
        return _UNROLLED.index(int(knobs["unroll"])) + (knobs["scale"] == "wide")


@dataclass(frozen=True)
class NearestSketch:
    """RESIZE to the nearest pixels with loops of C."""

    what: Nearest

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        return self.what.tables

    def program(self) -> Program:
        return self.what.program()

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """None is open: the compiler knows copies of pixels well."""
        return {}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return iter(())

    def cost(self, knobs: Knobs) -> float:
        return 0
