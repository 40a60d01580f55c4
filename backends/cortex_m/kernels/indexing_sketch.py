"""Rows that indices name, with the numbers that their schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernels.movement_sketch import cost_of_boxes, knobs_of_boxes, moved_box
from tosaic.backends.cortex_m.program.copied_rows import TOGETHER
from tosaic.backends.cortex_m.program.indexing import COPIED, MOVED_ROW, IndexedRows, gathered, scattered
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.movement import CopyBox, loops_of_box
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.movement import moved, written_out
from tosaic.backends.cortex_m.program.tree import BYTES, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_WRITTEN_OUT = (16, 8, 1)


@dataclass(frozen=True)
class _IndexedMove:
    """Rows that are gathered, or scattered.

    Args:
        values: the memory that values lie in of which rows are gathered; empty where rows are scattered.
    """

    rows: IndexedRows
    values: str
    constants: Mapping[str, np.ndarray] = field(compare=False, repr=False)

    def program(self) -> Program:
        return gathered(self.rows, self.values) if self.values else scattered(self.rows)

    @property
    def box(self) -> CopyBox:
        """What moves by one index."""
        return self.rows.box(bool(self.values))

    @property
    def loops(self) -> list[str]:
        """The loops over that."""
        return loops_of_box(MOVED_ROW, self.box)

    def copied(self) -> Iterator[str]:
        """The step of what a SCATTER does not change."""
        if not self.values and self.rows.values * BYTES[self.rows.dtype] >= TOGETHER:
            yield f"words(b{COPIED}a)"


class PlainRows(_IndexedMove):
    """On cores without vectors, and for rows that are shorter: copies of C, which compilers know well."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The number that is open where words must be aligned: `unroll`, elements of a row that are written out."""
        return {"unroll": _WRITTEN_OUT if core.baseline else (1,)}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        count = int(knobs["unroll"])
        yield from self.copied()
        row = self.box.axes[-1] if self.box.run and self.box.axes else None
        if row and count >= row.extent:
            yield from written_out(self.loops[-1], row.extent, count)
        elif count > 1:
            raise RefusedError(f"no row of {self.rows.width} is written out")
        elif row and row.extent * BYTES[self.rows.dtype] >= TOGETHER:
            yield f"words({self.loops[-1]})"

    def cost(self, knobs: Knobs) -> float:
        return _WRITTEN_OUT.index(int(knobs["unroll"])) / 4


class VectorRows(_IndexedMove):
    """On cores with vectors; see `sketches.movement`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        return knobs_of_boxes((self.box,))

    def steps(self, knobs: Knobs) -> Iterator[str]:
        yield from self.copied()
        source = "w" if self.values else "rows"
        yield from moved(moved_box(MOVED_ROW, self.box, source, self.rows.dtype, knobs))

    def cost(self, knobs: Knobs) -> float:
        return cost_of_boxes(knobs)
