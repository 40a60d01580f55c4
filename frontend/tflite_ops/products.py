"""Rows times constant weights."""

from __future__ import annotations

import numpy as np

from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import element, emit, zero_point

_SUMS = {"i8": "i32", "i16": "i48", "f32": "f32"}


def product_of_rows(x: ir.Value, weights: np.ndarray, bias: np.ndarray | None = None, input_zp: int = 0) -> ir.Value:
    """(x - input_zp) W^T + bias of [N, T, 1, I], as [N, T, 1, O] in the type of its sums.

    Args:
        weights: [O, I], int8, or float32 where x is.
        bias: [O]; nothing where it is left out.
    """
    kind, (n, rows, _, _) = str(element_type(x)), shape_of(x)
    added = np.zeros(1) if bias is None else bias
    sums = element(_SUMS[kind])
    points = [zero_point(input_zp, kind), zero_point(0, "i8" if kind != "f32" else kind)]
    offsets = constant(added.astype(np.float32 if kind == "f32" else np.int32 if kind == "i8" else np.int64), sums)
    operands = [x, constant(weights[:, None, None, :]), offsets, *points]
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": sums}
    return emit("conv2d", operands, (n, rows, 1, len(weights)), sums, **window)
