"""FULLY_CONNECTED of int16, which scales its sums with 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.frontend.tflite_ops.fixed_point import quantize_multiplier
from tosaic.frontend.tflite_ops.products import product_of_rows
from tosaic.frontend.tflite_ops.registry import Call, tflite_op
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import clamp, rescale, reshape

_LARGEST = 2**30  # of a sum that a RESCALE which shifts by 31 takes (TOSA 1.0, apply_scale_32)


def _fits(call: Call) -> bool:
    """Whether no sum exceeds 31 bits."""
    weights, bias = call.given(1), call.given(2)
    if call.kinds() != ("i16", "i16") or weights is None or weights.data is None or weights.kind != "i8":
        return False
    sums = np.abs(weights.array.astype(np.int64)).sum(1) * 2**15
    return bool((sums + (0 if bias is None else np.abs(bias.array))).max() < _LARGEST)


@tflite_op("FULLY_CONNECTED", when=_fits)
def fully_connected(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """Sums are scaled by their exact products with a multiplier of 32 bits, and rounded once."""
    (x,), (result,), bias = operands, call.outputs, call.given(2)
    source, weights = call.input(0), call.input(1)
    depth = weights.shape[1]
    rows = reshape(x, (1, int(np.prod(shape_of(x))) // depth, 1, depth))
    sums = product_of_rows(rows, weights.array, None if bias is None else bias.array)
    scales = np.float64(source.scale) * np.asarray(weights.scales, np.float64) / np.float64(result.scale)
    multipliers, shifts = zip(*map(quantize_multiplier, scales.tolist()), strict=True)
    stored = rescale(rescale(sums, "i32", [1 << 14], [14]), "i16", multipliers, shifts)
    shape = result.shape if len(result.shape) != 2 else (shape_of(rows)[1], len(weights.array))
    return [_activated(reshape(stored, shape), call)]


def _activated(x: ir.Value, call: Call) -> ir.Value:
    """With the limits of RELU, RELU_N1_TO_1 and RELU6 as integers."""
    low, high = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}[call.options["FusedActivationFunction"]]
    steps = [None if limit is None else round(limit / float(call.outputs[0].scale)) for limit in (low, high)]
    least, most = (bound if step is None else step for bound, step in zip((-(2**15), 2**15 - 1), steps, strict=True))
    return x if low is None and high is None else clamp(x, max(least, -(2**15)), min(most, 2**15 - 1))
