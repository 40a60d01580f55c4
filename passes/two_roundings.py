"""RESCALE that rounds twice, as ops of one rounding, which kernels of the core compute."""

from __future__ import annotations

import numpy as np

from tosaic.passes.rewrite import Replacement, pattern
from tosaic.support.attributes import bool_of, enum_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, rescale
from tosaic.support.values import producer

_FIRST = 31  # the shift of the first rounding (TOSA 1.0, apply_scale_32)


@pattern("tosa.rescale")
def two_roundings(op: ir.Operation) -> Replacement:
    """`rescale{double}(x, m, s)` -> `y = rescale(x, m, 31); rescale(y + (y >> 31), 2^30, s - 1)`.

    Half of the last step is rounded up first and away from zero then: a negative `y` counts one less. Channels that
    shift by 31 or less round once. A product of int16 may reach 2^30, which no RESCALE by 31 takes.
    """
    if (
        enum_of(op, "rounding_mode") != "DOUBLE_ROUND"
        or bool_of(op, "input_unsigned")
        or bool_of(op, "output_unsigned")
    ):
        return None
    constants = [constant_value(operand) for operand in list(op.operands)[1:]]
    x, kind = op.operands[0], element_type(op.results[0])
    product = producer(x, "tosa.mul")
    if any(one is None for one in constants) or (product and str(element_type(product.operands[0])) == "i16"):
        return None
    multiplier, shift, input_zp, output_zp = (np.asarray(one).reshape(-1).astype(int) for one in constants)
    first = np.minimum(shift, _FIRST)
    once = rescale(x, "i32", multiplier.tolist(), first.tolist(), int(input_zp[0]))
    sign = _operation("arithmetic_right_shift", once, _splat(once, _FIRST), round=False)
    if (shift <= _FIRST).any():
        sign = _operation("bitwise_and", sign, _along_channels(once, np.where(shift > _FIRST, -1, 0)))
    twice = (30 + shift - first).tolist()
    return rescale(_operation("add", once, sign), kind, [1 << 30] * len(twice), twice, 0, int(output_zp[0]))


def _operation(name: str, a: ir.Value, b: ir.Value, **attributes: object) -> ir.Value:
    return emit(name, [a, b], shape_of(a), "i32", **attributes)


def _splat(like: ir.Value, value: int) -> ir.Value:
    return constant(np.full([1] * len(shape_of(like)), value, np.int32))


def _along_channels(like: ir.Value, values: np.ndarray) -> ir.Value:
    return constant(values.astype(np.int32).reshape([1] * (len(shape_of(like)) - 1) + [-1]))
