"""Loops written iteration by iteration, for an NPU that has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import int_of
from tosaic.support.loops import unroll
from tosaic.support.mlir import constant, constant_shape, constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.tosa_builder import emit
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class UnrollLoops(ModulePass):
    """Write each loop iteration by iteration: rows that iterations gather and scatter become slices and one
    concatenation."""

    name: ClassVar[str] = "unroll-loops"

    def run(self, module: ir.Module) -> None:
        unroll(module)
        rewrite(module, [gathered_row, scattered_rows, joined_part, times_zero, plus_zero])


@pattern("tosa.gather")
def gathered_row(op: ir.Operation) -> Replacement:
    """One row, the same of each matrix, is a SLICE."""
    at = _place(op)
    n, _, width = shape_of(op.operands[0])
    if at is None:
        return None
    dims = (n, 1, width)
    return emit(
        "slice", [op.operands[0], constant_shape((0, at, 0)), constant_shape(dims)], dims, element_type(op.operands[0])
    )


@pattern("tosa.scatter")
def scattered_rows(op: ir.Operation) -> Replacement:
    """SCATTERs of single rows, one after another, that write all rows are a CONCAT."""
    if any(reader.name == "tosa.scatter" for reader in users(op.results[0])):
        return None
    rows: dict[int, ir.Value] = {}
    one: ir.Operation | None = op
    while one is not None:
        at = _place(one)
        if at is None:
            return None
        rows.setdefault(at, one.operands[2])
        one = producer(one.operands[0], "tosa.scatter")
    if len(rows) < shape_of(op.results[0])[1]:
        return None
    parts = [rows[at] for at in sorted(rows)]
    return emit("concat", parts, shape_of(op.results[0]), element_type(op.results[0]), axis=1)


def _place(op: ir.Operation) -> int | None:
    """The row that a GATHER or SCATTER takes of every matrix; None of several rows, or where it is not known."""
    places = constant_value(op.operands[1])
    return int(places.flat[0]) if places is not None and places.shape[1] == 1 and len(set(places.flat)) == 1 else None


@pattern("tosa.slice")
def joined_part(op: ir.Operation) -> Replacement:
    """A SLICE of a CONCAT that is one of its parts."""
    concat = producer(op.operands[0], "tosa.concat")
    starts = constant_value(op.operands[1])
    if concat is None or starts is None:
        return None
    axis, begin = int_of(concat, "axis"), 0
    for part in concat.operands:
        if part.type == op.results[0].type and starts[axis] == begin:
            return part
        begin += shape_of(part)[axis]
    return None


@pattern("tosa.mul")
def times_zero(op: ir.Operation) -> Replacement:
    """Nothing comes of what an empty state is multiplied by."""
    if not any(_is_zero(operand) for operand in list(op.operands)[:2]):
        return None
    kind = element_type(op.results[0])
    return constant(np.zeros(shape_of(op.results[0]), numpy_dtype(kind)), kind)


@pattern("tosa.add")
def plus_zero(op: ir.Operation) -> Replacement:
    """A sum with an empty state is its other operand."""
    for zero, other in (op.operands, reversed(list(op.operands))):
        if _is_zero(zero) and other.type == op.results[0].type:
            return other
    return None


def _is_zero(value: ir.Value) -> bool:
    known = constant_value(value)
    return known is not None and known.dtype.kind == "i" and not known.any()
