"""Layer normalisation in integers."""

from __future__ import annotations

import math

import numpy as np

from tosaic.passes.emit import emit, mul
from tosaic.passes.quantize.composites import (
    MANTISSA,
    binary,
    composite_of,
    integer,
    reciprocal_root,
    shift_right,
)
from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantise, scale_by
from tosaic.passes.quantize.quantisation import Quantisation, float_constant, quantised_view
from tosaic.support.mlir import constant, ir, shape_of

_CENTRED_BITS = 7  # |x - mean| <= 255, in 1/128 that is 15 bits
_RESULT_BITS = 12


@lowers("func.call")
def layer_norm(op: ir.Operation, out: Quantisation) -> ir.Value | None:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension.

    n * x - sum(x) is exact; scaled to 1/128 it is the numerator, and scaled so that the sum of its squares just fits
    i32 it gives the variance.
    """
    composite = composite_of(op, "layer_norm")
    view = quantised_view(op.operands[0]) if composite is not None else None
    if composite is None or view is None or view[1].storage != "i8":
        return None
    x, quantisation = view
    weight, bias = (float_constant(operand) for operand in list(op.operands)[1:3])
    axis, shape = ir.IntegerAttr(composite.attributes["tosaic.axis"]).value, shape_of(x)
    epsilon = ir.FloatAttr(composite.attributes["tosaic.epsilon"]).value / quantisation.scale**2
    size, rank = shape[-1], len(shape)
    bits = _square_bits(size, epsilon)
    if weight is None or bias is None or axis != rank - 1 or bits is None:
        return None
    reduced = [*shape[:-1], 1]
    point = quantisation.zero_point
    total = emit("reduce_sum", [scale_by(x, "i32", [1.0], point)], reduced, "i32", axis=axis)
    centred = binary("sub", scale_by(x, "i32", [float(size)], point), total)
    root_input = scale_by(centred, "i32", [2.0**bits / size])
    squares = emit("reduce_sum", [mul(root_input, root_input, "i32")], reduced, "i32", axis=axis)
    offset = max(1, round(epsilon * size * 4**bits))
    inverse, half = reciprocal_root(binary("add", squares, integer(offset, rank)))
    numerator = scale_by(centred, "i32", [2.0**_CENTRED_BITS / size])
    normal = shift_right(mul(numerator, inverse, "i32"), binary("sub", integer(15, rank), half))
    unit = math.sqrt(size) * 2.0 ** (bits + 15 - _CENTRED_BITS - 14.5) / MANTISSA
    return _affine(normal, unit, weight, bias, out)


def _affine(normal: ir.Value, unit: float, weight: np.ndarray, bias: np.ndarray, out: Quantisation) -> ir.Value:
    """normal * unit * weight + bias; RESCALE takes no negative factor, so signs go first."""
    shape = shape_of(normal)
    row = [1] * (len(shape) - 1) + [-1]
    weight, bias = (np.broadcast_to(values.reshape(-1), shape[-1:]) for values in (weight, bias))
    if (weight < 0).any():
        normal = mul(normal, constant(np.sign(weight).astype(np.int32).reshape(row)), "i32")
    fine = out.scale / 2**_RESULT_BITS
    factors = [max(abs(float(value)) * unit / fine, 2.0**-60) for value in weight]
    scaled = scale_by(normal, "i32", factors if len(set(factors)) > 1 else factors[:1])
    offset = constant(np.rint(bias / fine).astype(np.int32).reshape(row))
    return requantise(binary("add", scaled, offset), [fine], out)


def _square_bits(size: int, epsilon: float) -> int | None:
    """The most fractional bits with which size * (127.5**2 + epsilon) stays below 2**31; None where none does.

    The squared deviations of n values in a range of 255 sum to at most n * 127.5**2 (Popoviciu 1935). One unit is
    left for rounding.
    """
    for bits in range(_CENTRED_BITS, -1, -1):
        if size * ((127.5 * 2**bits + 1) ** 2 + epsilon * 4**bits) < 2**31 - 1:
            return bits
    return None
