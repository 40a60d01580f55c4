"""Softmax in integers."""

from __future__ import annotations

import numpy as np

from tosaic.passes.quantize.composites import ONE, binary, composite_of, integer, lookup, reciprocal, shift_right
from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize, scale_by, widen
from tosaic.passes.quantize.quantization import quantized_view
from tosaic.support.attributes import int_of
from tosaic.support.mlir import ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import emit, mul, rescale

_SPAN = 12.0  # exp(-12) is below half a unit of the exponentials
_COARSE = 2.0**-14  # a step of the result, of which 2**-16 is a quarter


@lowers("func.call")
def softmax(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """e = exp(x - max) in units of 1/ONE, then e times the reciprocal of their sum.

    With int8 every difference has its own table entry, so that e is exact to half a unit; with int16 the table
    interpolates. The sum of up to 2**15 terms fits i32.
    """
    composite = composite_of(op, "softmax")
    view = quantized_view(op.operands[0]) if composite is not None else None
    if composite is None or view is None or view[1].storage not in ("i8", "i16"):
        return None
    x, quantization = view
    axis = int_of(composite, "tosaic.axis")
    shape = shape_of(x)
    reduced = [1 if i == axis else size for i, size in enumerate(shape)]
    if shape[axis] > 2**15:
        return None
    largest = emit("reduce_max", [x], reduced, quantization.storage, axis=axis)
    powers = _exponential(binary("sub", widen(x, 0), widen(largest, 0)), quantization)
    total = emit("reduce_sum", [widen(powers, 0)], reduced, "i32", axis=axis)
    inverse, zeros = reciprocal(total)
    # The total is at least ONE, so that CLZ gives 17 at most and the shifts are not negative.
    shift = binary("sub", integer(17, len(shape)), zeros)
    if out.storage == "i16" or out.scale < _COARSE:
        fraction = shift_right(mul(powers, inverse, "i32"), shift)
        return requantize(fraction, [1 / (ONE * 2.0**14)], out)
    # ONE * 2**15 / total fits i16, and half a unit of it is at most 2**-16 of the result.
    share = rescale(shift_right(scale_by(inverse, "i32", [4.0]), shift), "i16", [1 << 30], [31])
    return requantize(mul(powers, share, "i32"), [1 / (ONE * 2.0**15)], out)


def _exponential(difference: ir.Value, quantization: Quantization) -> ir.Value:
    """exp(difference * scale) * ONE as i16, for differences that are not positive."""
    scale = quantization.scale
    if quantization.storage == "i8":
        index = rescale(difference, "i16", [1 << 30], [23])
        return lookup(index, lambda i: np.exp(np.minimum(i, 0) / 128 * scale))
    steps = scale_by(difference, "i32", [scale * 65536 / _SPAN])
    index = rescale(binary("add", steps, integer(32767, len(shape_of(steps)))), "i16", [1 << 30], [30])
    return lookup(index, lambda i: np.exp((i - 32767) * _SPAN / 65536))
