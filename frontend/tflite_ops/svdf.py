"""SVDF: a filter over features, then one over time, as LiteRT's reference kernels compute it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.frontend.tflite_ops.activations import ACTIVATIONS
from tosaic.frontend.tflite_ops.fixed_point import binary, quotient, scaled
from tosaic.frontend.tflite_ops.products import product_of_rows
from tosaic.frontend.tflite_ops.registry import Call, tflite_op
from tosaic.frontend.tflite_ops.states import VariableTensor
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape, sliced

_FEATURES, _TIME, _BIAS, _STATE = 1, 2, 3, 4


@tflite_op("SVDF", when=lambda call: _kinds(call) == ("i8", "i8", "i16", "i16"))
def svdf_of_integers(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """`EvalIntegerSVDF`: what is kept has 16 bits."""
    (x,), (result,), bias = operands, call.outputs, call.given(_BIAS)
    source, features, time, state = (call.input(index) for index in (0, _FEATURES, _TIME, _STATE))
    sums = product_of_rows(_row(x), features.array, input_zp=source.zero_point)
    latest = scaled(sums, [quotient(source.scale, features.scale, state.scale)], "i16")
    total = _over_time(call, latest, "i32")
    if bias is not None:
        total = binary("add", total, constant(bias.array[None]))
    return [scaled(total, [quotient(state.scale, time.scale, result.scale)], "i8", result.zero_point)]


@tflite_op("SVDF", when=lambda call: call.kinds() == ("f32", "f32"))
def svdf_of_floats(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """Weights may be integers with scales."""
    (x,), bias = operands, call.given(_BIAS)
    latest = product_of_rows(_row(x), call.input(_FEATURES).real)
    total = _over_time(call, latest, "f32")
    if bias is not None:
        total = emit("add", [total, constant(bias.real[None])], shape_of(total), "f32")
    return [ACTIVATIONS[call.options["FusedActivationFunction"]](total)]


def _kinds(call: Call) -> tuple[str, ...]:
    return tuple(one.kind for one in (call.given(i) for i in (0, _FEATURES, _TIME, _STATE)) if one is not None)


def _row(x: ir.Value) -> ir.Value:
    batch, size = shape_of(x)
    return reshape(x, (batch, 1, 1, size))


def _over_time(call: Call, latest: ir.Value, kind: str) -> ir.Value:
    """The latest product joins what is kept, the oldest leaves; each unit sums over time and over its filters.

    Args:
        latest: [N, 1, 1, filters].

    Returns:
        [N, units].
    """
    weights = call.input(_TIME)
    array = weights.real if kind == "f32" else weights.array
    (filters, times), batch, stored = array.shape, shape_of(latest)[0], element_type(latest)
    state = VariableTensor(call, _STATE)
    kept = reshape(state.read(), (batch, filters, times))
    if times > 1:
        later = sliced(kept, (0, 0, 1), (batch, filters, times - 1))
        both = [later, reshape(latest, (batch, filters, 1))]
        kept = emit("concat", both, (batch, filters, times), stored, axis=2)
    else:
        kept = reshape(latest, (batch, filters, 1))
    state.write(reshape(kept, (batch, filters * times)))
    shift = constant(np.zeros(1, np.int8))
    weighted = emit("mul", [kept, constant(array[None]), shift], (batch, filters, times), kind)
    units = filters // call.options["Rank"]
    rows = reshape(weighted, (batch, units, filters // units * times))
    return reshape(emit("reduce_sum", [rows], (batch, units, 1), kind, axis=2), (batch, units))
