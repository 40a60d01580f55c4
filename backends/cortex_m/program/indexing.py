"""Programs that move rows to or from where indices say: GATHER and SCATTER."""

from __future__ import annotations

from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.tree import Access, Assign, Buffer, Let, Program, Statement

MOVED_ROW, COPIED = 1, 0
"""The numbers of the boxes of a row, and of all that a SCATTER does not change; as of `program.movement`."""


class IndexedRows(NamedTuple):
    """Values (batch, places, width), and indices of their rows (batch, indices); a row has `width` elements."""

    batch: int
    places: int
    indices: int
    width: int
    dtype: str

    @property
    def values(self) -> int:
        """Elements of the values."""
        return self.batch * self.places * self.width

    @property
    def rows(self) -> int:
        """Elements of the rows that are named."""
        return self.batch * self.indices * self.width


def gathered(r: IndexedRows, values: str) -> Program:
    """GATHER: each row of the result is the one of the values that its index names.

    Args:
        values: the memory that they are in: `in` or `const`.
    """
    arguments = (
        Buffer("w", r.dtype, (r.values,), values),
        Buffer("indices", "i32", (r.batch * r.indices,), "in"),
        Buffer("out", r.dtype, (r.rows,), "out"),
    )
    return Program(arguments, _indexed(r, "w", "out"))


def looked_up(rows: int, width: int, count: int) -> Program:
    """GATHER of rows of bytes of a table (rows, width); `c` counts bytes of a row."""
    arguments = (
        Buffer("w", "i8", (rows, width), "const"),
        Buffer("indices", "i32", (count,), "in"),
        Buffer("out", "i8", (count, width), "out"),
    )
    copy = Assign(Access("out", (Affine.of("n"), Affine.of("c"))), Access("w", (Affine.of("at"), Affine.of("c"))))
    index = Access("indices", (Affine.of("n"),))
    return Program(arguments, nested(Let("at", index, rows, nested(copy, **{f"b{MOVED_ROW}": 1, "c": width})), n=count))


def scattered(r: IndexedRows) -> Program:
    """SCATTER: the values, with rows in the places that their indices name; where there is no such place, none."""
    arguments = (
        Buffer("values", r.dtype, (r.values,), "in"),
        Buffer("indices", "i32", (r.batch * r.indices,), "in"),
        Buffer("rows", r.dtype, (r.rows,), "in"),
        Buffer("out", r.dtype, (r.values,), "out"),
    )
    element = (Affine.of(f"b{COPIED}a"),)
    copy = nested(
        Assign(Access("out", element), Access("values", element)), **{f"b{COPIED}": 1, f"b{COPIED}a": r.values}
    )
    return Program(arguments, seq(copy, _indexed(r, "rows", "out")))


def _indexed(r: IndexedRows, source: str, target: str) -> Statement:
    """Loops over the indices, which move a row each: what is as large as the values is indexed."""
    element = Affine.of(f"b{MOVED_ROW}a")
    named = (Affine.of("n") * r.places + "at") * r.width + element
    row = (Affine.of("n") * r.indices + "row") * r.width + element
    gathers = source == "w"
    move = Assign(Access(target, (row if gathers else named,)), Access(source, (named if gathers else row,)))
    index = Access("indices", (Affine.of("n") * r.indices + "row",))
    moved = nested(move, **{f"b{MOVED_ROW}": 1, f"b{MOVED_ROW}a": r.width})
    return nested(Let("at", index, r.places, moved), n=r.batch, row=r.indices)
