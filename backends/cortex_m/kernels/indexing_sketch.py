"""Rows that indices name, with the numbers that their schedules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.program.copied_rows import TOGETHER
from tosaic.backends.cortex_m.program.indexing import COPIED, MOVED_ROW, IndexedRows, gathered, scattered
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.movement import MovedBox, moved, written_out
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS, Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_ROW = f"b{MOVED_ROW}a"
"""The loop over a row."""
_WRITTEN_OUT = (16, 8, 1)
_UNROLLED = (1, 2, 4)


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
        count, width = int(knobs["unroll"]), self.rows.width
        yield from self.copied()
        if count >= width and width > 1:
            yield from written_out(_ROW, width, count)
        elif count > 1:
            raise RefusedError(f"a row of {width} is not written out")
        elif width * BYTES[self.rows.dtype] >= TOGETHER:
            yield f"words({_ROW})"

    def cost(self, knobs: Knobs) -> float:
        return _WRITTEN_OUT.index(int(knobs["unroll"])) / 4


class VectorRows(_IndexedMove):
    """On cores with vectors; see `sketches.movement`."""

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `unroll`, vectors in an iteration of a loop over many, and `ahead`, loads that run
        an iteration ahead."""
        return {"unroll": _UNROLLED, "ahead": (1, 0)}

    def steps(self, knobs: Knobs) -> Iterator[str]:
        yield from self.copied()
        row = MovedBox(
            MOVED_ROW,
            (_ROW,),
            (self.rows.width,),
            _ROW,
            "w" if self.values else "rows",
            "",
            REGISTERS["q"] // BYTES[self.rows.dtype],
            self.rows.dtype,
            0,
            int(knobs["unroll"]),
            int(knobs["ahead"]),
        )
        yield from moved(row)

    def cost(self, knobs: Knobs) -> float:
        return _UNROLLED.index(int(knobs["unroll"])) / 4 + (int(knobs["ahead"]) == 0)
