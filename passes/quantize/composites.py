"""What softmax and layer_norm share: finding the composite behind a call, and 1/x and 1/sqrt(x) of positive i32.

Only ops that every Ethos-U takes are used: CLZ and LOGICAL_LEFT_SHIFT normalize, a TABLE of i16 looks up. Elementwise
ops read and write i8 and i16 where they can: those an Ethos-U computes in one pass with the RESCALEs around them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.passes.quantize.multipliers import scale_by
from tosaic.support.attributes import text_of
from tosaic.support.functions import body_of, callee_of
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.tosa_builder import emit, rescale

ONE = 32767  # what `lookup` makes of 1.0


def composite_of(call: ir.Operation, kind: str) -> ir.Operation | None:
    """The composite function of `kind` that `call` calls, else None."""
    known = {text_of(op, "sym_name"): op.operation for op in body_of(call.parent.parent).operations}
    function = known[callee_of(call)]
    found = "tosaic.composite" in function.attributes and text_of(function, "tosaic.composite") == kind
    return function if found else None


def integer(value: int, rank: int) -> ir.Value:
    """An i32 constant that broadcasts to `rank` dimensions."""
    return constant(np.full([1] * rank, value, np.int32))


def binary(name: str, a: ir.Value, b: ir.Value, **attributes: object) -> ir.Value:
    """An i32 op of two operands."""
    return emit(name, [a, b], np.broadcast_shapes(shape_of(a), shape_of(b)), "i32", **attributes)


def shift_right(x: ir.Value, amount: ir.Value) -> ir.Value:
    """x >> amount, towards minus infinity."""
    return binary("arithmetic_right_shift", x, amount, round=False)


def lookup(index: ir.Value, function: Callable[[np.ndarray], np.ndarray], one: int = ONE) -> ir.Value:
    """one * function(index) as i16, by a TABLE with an entry for each i = -32768, -32640 ... 32768 and lines between.

    Where the index is a multiple of 128 the result is the function's, rounded once.
    """
    return rescale(interpolated(index, function, one), "i16", [1 << 30], [37])


def interpolated(index: ir.Value, function: Callable[[np.ndarray], np.ndarray], one: int = ONE) -> ir.Value:
    """128 * one * function(index) as i32, by the TABLE of `lookup`."""
    points = np.arange(-32768, 32769, 128).astype(np.float64)
    entries = np.clip(np.rint(function(points) * one), -ONE - 1, ONE).astype(np.int16)
    return emit("table", [index, constant(entries)], shape_of(index), "i32")


def reciprocal(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(m, n) with 1/x = m / ONE / 2**(31 - n) for x in 1..2**31-1; m is i16 in ONE/2..ONE, n = CLZ(x)."""
    rank = len(shape_of(x))
    zeros = emit("clz", [x], shape_of(x), "i32")
    normal = binary("logical_left_shift", x, binary("sub", zeros, integer(1, rank)))
    # normal is in [2**30, 2**31); its middle becomes index 0.
    index = rescale(binary("sub", normal, integer(3 << 29, rank)), "i16", [1 << 30], [44])
    return lookup(index, lambda i: 1 / (1.5 + i / 2**16)), zeros


def reciprocal_root(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(m, h) with 1/sqrt(x) = m / ONE * 2**h / 2**14.5 for x in 1..2**31-1; m is i16 in ONE/2..ONE, h in 0..15."""
    rank = len(shape_of(x))
    zeros = emit("clz", [x], shape_of(x), "i32")
    half = shift_right(binary("sub", zeros, integer(1, rank)), integer(1, rank))
    normal = binary("logical_left_shift", x, binary("add", half, half))
    # normal is in [2**29, 2**31); its middle becomes index 0.
    centered = binary("sub", normal, integer(5 << 28, rank))
    index = scale_by(centered, "i16", [2.0**15 / (3 * 2.0**28)])
    return lookup(index, lambda i: 1 / np.sqrt(2.5 + 1.5 * i / 2**15)), half
