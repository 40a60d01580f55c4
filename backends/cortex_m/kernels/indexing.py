"""GATHER and SCATTER of whole rows: these are all that moves, where a result lies over what it changes.

A kernel takes in the TILE that gives all batches the same indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.indexing_sketch import PlainRows, VectorRows
from tosaic.backends.cortex_m.kernels.lookup import Lookup
from tosaic.backends.cortex_m.kernels.movement import ELEMENTS
from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.kernels.mve_match import number, workload
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.indexing import IndexedRows
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.tree import BYTES
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.kernels import repeats_indices
from tosaic.support.mlir import constant_value, element_type, ir, numpy_dtype, shape_of


class _IndexedRows(ProgramFamily):
    """One op that moves rows of elements of one, two or four bytes to or from where an argument of indices says."""

    op: ClassVar[str]

    def match(self, function: ir.Operation) -> Workload | None:
        *tiles, op = computing_ops(function)
        if op.name != self.op or any(not repeats_indices(tile, op) for tile in tiles):
            return None
        if returned(function) != list(op.results):
            return None
        values, indices, *rows = op.operands
        table, size = constant_value(values), numpy_dtype(element_type(values)).itemsize
        given = [tiles[0].operands[0], values] if tiles else [values, indices]
        given = [*(each for each in given if table is None or each != values), *rows]
        if given != list(body_of(function).arguments) or size not in ELEMENTS or (table is not None and rows):
            return None
        (batch, places, width), (_, count) = shape_of(values), shape_of(indices)
        moved = IndexedRows(batch, places, count, width, ELEMENTS[size], bool(tiles))
        constants = {} if table is None else {"w": np.ascontiguousarray(table).view(f"i{size}").reshape(-1)}
        gathered = "" if rows else "in" if table is None else "const"
        return workload(self.name, {"values": gathered, **moved._asdict()}, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        return PlainRows(*self._what(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        what = self._what(workload)
        box, size = what[0].box(bool(what[1])), BYTES[what[0].dtype]
        fills = box.touches_neighbors and (not box.run or box.axes[-1].extent * size >= VECTOR)
        return {"vectors": VectorRows(*what)} if fills else {"words": PlainRows(*what)}

    def _what(self, workload: Workload) -> tuple[IndexedRows, str, Mapping[str, np.ndarray]]:
        batch, places, count, width = (number(workload, name) for name in ("batch", "places", "indices", "width"))
        dtype, shared = str(workload.attributes["dtype"]), bool(workload.attributes["shared"])
        rows = IndexedRows(batch, places, count, width, dtype, shared)
        return rows, str(workload.attributes["values"]), workload.constants


@FAMILIES.register
class GatherRows(_IndexedRows):
    """One GATHER: values (n, k, c), an argument or a constant, indices (n, w); the result is (n, w, c)."""

    name = "gather"
    op = "tosa.gather"

    def match(self, function: ir.Operation) -> Workload | None:
        return None if Lookup().match(function) else super().match(function)


@FAMILIES.register
class ScatterRows(_IndexedRows):
    """One SCATTER of arguments: values (n, k, c), indices (n, w), rows (n, w, c). A row for a place that is not there
    is not written."""

    name = "scatter"
    op = "tosa.scatter"
