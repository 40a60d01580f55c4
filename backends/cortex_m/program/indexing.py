"""Programs that move rows to or from where indices say: GATHER and SCATTER."""

from __future__ import annotations

from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.movement import CopyAxis, CopyBox, places_of_box
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.tree import Access, Assign, Buffer, Let, Statement

MOVED_ROW, COPIED = 1, 0
"""The numbers of the boxes of a row, and of all that a SCATTER does not change; as of `program.movement`."""


class IndexedRows(NamedTuple):
    """Values (batch, places, width), and indices of their rows (batch, indices); a row has `width` elements.

    Args:
        shared: whether all batches have the same indices, which are (1, indices) and a kernel's first argument.
    """

    batch: int
    places: int
    indices: int
    width: int
    dtype: str
    shared: bool = False

    @property
    def values(self) -> int:
        """Elements of the values."""
        return self.batch * self.places * self.width

    @property
    def rows(self) -> int:
        """Elements of the rows that are named."""
        return self.batch * self.indices * self.width

    def box(self, gathers: bool) -> CopyBox:
        """What moves by one index: a row, or that of each batch."""
        strides = [self.indices * self.width, self.places * self.width]
        source, result = reversed(strides) if gathers else strides
        row = CopyAxis(self.width, 1, 1)
        return CopyBox.of(0, 0, 0, (CopyAxis(self.batch, source, result), row) if self.shared else (row,))


def gathered(r: IndexedRows, values: str) -> Program:
    """GATHER: each row of the result is the one of the values that its index names.

    Args:
        values: the memory that they are in: `in` or `const`.
    """
    arguments = (*_given(r, Buffer("w", r.dtype, (r.values,), values)), Buffer("out", r.dtype, (r.rows,), "out"))
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
        *_given(r, Buffer("values", r.dtype, (r.values,), "in")),
        Buffer("rows", r.dtype, (r.rows,), "in"),
        Buffer("out", r.dtype, (r.values,), "out"),
    )
    element = (Affine.of(f"b{COPIED}a"),)
    copy = nested(
        Assign(Access("out", element), Access("values", element)), **{f"b{COPIED}": 1, f"b{COPIED}a": r.values}
    )
    return Program(arguments, seq(copy, _indexed(r, "rows", "out")))


def _given(r: IndexedRows, values: Buffer) -> tuple[Buffer, Buffer]:
    """Values and indices, in the order in which a kernel has them."""
    indices = Buffer("indices", "i32", (r.indices if r.shared else r.batch * r.indices,), "in")
    return (indices, values) if r.shared else (values, indices)


def _indexed(r: IndexedRows, source: str, target: str) -> Statement:
    """Loops over the indices, each of which moves a box: what is as large as the values is indexed."""
    gathers, own = source == "w", Affine.of(0) if r.shared else Affine.of("n")
    read, written, extents = places_of_box(MOVED_ROW, r.box(gathers))
    named, row = (own * r.places + "at") * r.width, (own * r.indices + "row") * r.width
    read, written = (read + named, written + row) if gathers else (read + row, written + named)
    move = nested(Assign(Access(target, (written,)), Access(source, (read,))), **extents)
    body = nested(Let("at", Access("indices", (own * r.indices + "row",)), r.places, move), row=r.indices)
    return body if r.shared else nested(body, n=r.batch)
