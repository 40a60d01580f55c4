"""LSTM layers, whose states LiteRT keeps from call to call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tosaic.frontend.tflite_ops.activations import ACTIVATIONS, sigmoid
from tosaic.frontend.tflite_ops.fixed_point import (
    MOST,
    binary,
    divided,
    logistic,
    narrowed,
    product,
    quotient,
    saturated,
    scaled,
    tanh,
    widened,
)
from tosaic.frontend.tflite_ops.products import product_of_rows
from tosaic.frontend.tflite_ops.registry import Call, FileTensor, tflite_op
from tosaic.frontend.tflite_ops.states import VariableTensor
from tosaic.support.errors import ModelError
from tosaic.support.loops import Step, over_rows
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import clamp, emit, mul, reshape, sliced, transpose

_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_FROM_INPUT, _FROM_OUTPUT, _BIAS = 1, 5, 12
"""Where the tensors of the gates begin among the inputs of an op."""
_FROM_CELL = {_INPUT: 9, _FORGET: 10, _OUTPUT: 11}
_PROJECTION, _PROJECTION_BIAS, _OUTPUT_STATE, _CELL_STATE, _NORMS = 16, 17, 18, 19, 20
_GATE_BITS = 12  # behind the point of the sums before a gate
_ORDER = (_INPUT, _FORGET, _OUTPUT, _CELL)


class _LstmCall:
    """The tensors of a call."""

    def __init__(self, call: Call) -> None:
        self.call = call
        if any(call.given(_NORMS + gate) is not None for gate in range(4)):
            raise _refused(call, "it normalizes its gates")
        self.source, self.output, self.cell = (call.input(index) for index in (0, _OUTPUT_STATE, _CELL_STATE))
        self.size = self.cell.shape[1]
        self.gates = [gate for gate in _ORDER if call.given(_FROM_INPUT + gate) is not None]
        """Without an input gate, what is taken is what is not kept."""

    def joined(self, first: int, real: bool) -> np.ndarray:
        """Weights or biases of all gates, one under the other."""
        tensors = [self.call.input(first + gate) for gate in self.gates]
        return np.concatenate([one.real if real else one.array for one in tensors])

    def factors(self, first: int, source: FileTensor) -> list[float]:
        """What scales the products with weights to the sums before the gates, for each row of the weights."""
        weights = [self.call.input(first + gate).scale for gate in self.gates]
        return [quotient(scale, source.scale, 2**-_GATE_BITS) for scale in weights for _ in range(self.size)]

    def gate(self, sums: ir.Value, gate: int) -> ir.Value:
        """The part of joined sums [N, 1, 1, gates * size] that is one gate's."""
        batch, begin = shape_of(sums)[0], self.gates.index(gate) * self.size
        return sliced(sums, (0, 0, 0, begin), (batch, 1, 1, self.size))


@tflite_op("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", when=lambda call: _kinds(call) == ("i8", "i8", "i8", "i16"))
def lstm_of_integers(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """`LstmStepInteger8x8_16`: gates and cell have 16 bits."""
    layer = _LstmCall(call)
    hidden = call.intermediates[4] if len(call.intermediates) > 4 else layer.output
    projected = call.given(_PROJECTION) is not None
    if projected and call.given(_FROM_CELL[_FORGET]) is not None:
        raise _refused(call, "its gates look at the cell, and its result is a projection, which LiteRT mixes up")
    hidden_zp = -hidden.zero_point if projected else hidden.zero_point  # what LiteRT subtracts, or adds
    scale_bits = round(math.log2(layer.cell.scale))
    from_x, from_h = (layer.joined(first, False) for first in (_FROM_INPUT, _FROM_OUTPUT))
    factors = layer.factors(_FROM_OUTPUT, layer.output)

    def step(row: ir.Value, carried: Sequence[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        h, c = carried[0], widened(carried[1])
        again = product_of_rows(h, from_h, input_zp=layer.output.zero_point)
        sums = saturated(binary("add", widened(row), scaled(again, factors)))
        keep = logistic(_with_cell(layer, layer.gate(sums, _FORGET), _FORGET, c), 15 - _GATE_BITS)
        if _INPUT in layer.gates:
            take = logistic(_with_cell(layer, layer.gate(sums, _INPUT), _INPUT, c), 15 - _GATE_BITS)
        else:
            take = binary("sub", constant(np.full((1, 1, 1, 1), MOST, np.int32)), keep)
        new = tanh(layer.gate(sums, _CELL), 15 - _GATE_BITS)
        kept, taken = divided(product(keep, c), 15), divided(product(take, new), 30 + scale_bits)
        c = _clipped(saturated(binary("add", kept, taken)), layer.cell, call.options["CellClip"])
        give = logistic(_with_cell(layer, layer.gate(sums, _OUTPUT), _OUTPUT, c), 15 - _GATE_BITS)
        result = product(give, tanh(c, 15 + scale_bits))
        h = scaled(result, [float(np.float32(2.0**-30 / hidden.scale))], "i8", hidden_zp)
        if projected:
            h = _projected(layer, h, hidden.scale, hidden_zp)
        return h, [h, narrowed(c, "i16")]

    def before(x: ir.Value) -> ir.Value:
        sums = product_of_rows(x, from_x, layer.joined(_BIAS, False), layer.source.zero_point)
        return scaled(sums, layer.factors(_FROM_INPUT, layer.source), "i16")

    return [_over_time(layer, operands[0], before, step)]


@tflite_op("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", when=lambda call: call.kinds() == ("f32", "f32"))
def lstm_of_floats(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """Weights may be integers with scales."""
    layer = _LstmCall(call)
    activation = ACTIVATIONS[call.options["FusedActivationFunction"]]
    from_x, from_h = (layer.joined(first, True) for first in (_FROM_INPUT, _FROM_OUTPUT))

    def add(a: ir.Value, b: ir.Value) -> ir.Value:
        return emit("add", [a, b], shape_of(a), "f32")

    def with_cell(sums: ir.Value, gate: int, c: ir.Value) -> ir.Value:
        weights = call.given(_FROM_CELL[gate])
        return sums if weights is None else add(sums, mul(c, constant(weights.real[None, None, None]), "f32"))

    def clipped(x: ir.Value, limit: float) -> ir.Value:
        return clamp(x, -limit, limit) if limit > 0 else x

    def step(row: ir.Value, carried: Sequence[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        h, c = carried
        sums = add(row, product_of_rows(h, from_h))
        keep = sigmoid(with_cell(layer.gate(sums, _FORGET), _FORGET, c))
        if _INPUT in layer.gates:
            take = sigmoid(with_cell(layer.gate(sums, _INPUT), _INPUT, c))
        else:
            one = constant(np.ones((1, 1, 1, 1), np.float32))
            take = emit("sub", [one, keep], shape_of(keep), "f32")
        new = activation(layer.gate(sums, _CELL))
        c = clipped(add(mul(keep, c, "f32"), mul(take, new, "f32")), call.options["CellClip"])
        give = sigmoid(with_cell(layer.gate(sums, _OUTPUT), _OUTPUT, c))
        h = mul(give, activation(c), "f32")
        weights, bias = call.given(_PROJECTION), call.given(_PROJECTION_BIAS)
        if weights is not None:
            h = product_of_rows(h, weights.real, None if bias is None else bias.real)
            h = clipped(h, call.options["ProjClip"])
        return h, [h, c]

    def before(x: ir.Value) -> ir.Value:
        return product_of_rows(x, from_x, layer.joined(_BIAS, True))

    return [_over_time(layer, operands[0], before, step)]


def _kinds(call: Call) -> tuple[str, ...]:
    states = (call.given(index) for index in (_OUTPUT_STATE, _CELL_STATE))
    return (*call.kinds(), *(one.kind for one in states if one is not None))


def _with_cell(layer: _LstmCall, sums: ir.Value, gate: int, cell: ir.Value) -> ir.Value:
    """A gate that also looks at the cell."""
    weights = layer.call.given(_FROM_CELL[gate])
    if weights is None:
        return sums
    factor = quotient(layer.cell.scale, weights.scale, 2**-_GATE_BITS)
    array = constant(weights.array.astype(np.int32)[None, None, None])
    return saturated(binary("add", sums, scaled(product(cell, array), [factor])))


def _projected(layer: _LstmCall, h: ir.Value, scale: float, zero_point: int) -> ir.Value:
    weights, bias, output = layer.call.input(_PROJECTION), layer.call.given(_PROJECTION_BIAS), layer.output
    sums = product_of_rows(h, weights.array, None if bias is None else bias.array, zero_point)
    result = scaled(sums, [quotient(weights.scale, scale, output.scale)], "i8", output.zero_point)
    limit = int(np.clip(quotient(1, layer.call.options["ProjClip"], output.scale), -128, 127))
    return clamp(result, -limit, limit) if limit > 0 else result


def _clipped(x: ir.Value, cell: FileTensor, limit: float) -> ir.Value:
    """To a real number's magnitude, in units of the cell."""
    most = int(np.clip(quotient(1, limit, cell.scale), -(2**15), MOST))
    return binary("maximum", binary("minimum", x, most), -most) if most > 0 else x


def _over_time(layer: _LstmCall, x: ir.Value, before: Callable[[ir.Value], ir.Value], step: Step) -> ir.Value:
    """All steps, and the states after them.

    Args:
        before: emits what all steps compute of the inputs [N, T, 1, I] alone.
        step: as `over_rows` takes it.
    """
    output, cell = VariableTensor(layer.call, _OUTPUT_STATE), VariableTensor(layer.call, _CELL_STATE)
    states = [reshape(one, (shape_of(one)[0], 1, 1, shape_of(one)[1])) for one in (output.read(), cell.read())]
    shape = shape_of(x)
    swapped = len(shape) == 3 and bool(layer.call.options.get("TimeMajor"))
    rows = transpose(x, (1, 0, 2)) if swapped else x
    batch, inner = shape_of(rows)[0], shape[-1]
    if batch != layer.output.shape[0]:
        raise _refused(layer.call, f"its states are those of {layer.output.shape[0]} sequences, and {batch} are given")
    sums = before(reshape(rows, (batch, 1 if len(shape) < 3 else shape_of(rows)[1], 1, inner)))
    sums = reshape(sums, (batch, shape_of(sums)[1], shape_of(sums)[3]))
    outer, kind = layer.output.shape[1], element_type(states[0])
    results, last = over_rows(sums, outer, kind, states, step)
    for state, value in zip((output, cell), last, strict=True):
        state.write(reshape(value, (batch, shape_of(value)[3])))
    results = transpose(results, (1, 0, 2)) if swapped else results
    return reshape(results, (*shape[:-1], outer))


def _refused(call: Call, why: str) -> ModelError:
    what, hint = f"the op `{call.op}` cannot be compiled", "write the layer without it, or export it as .onnx or .pt2"
    return ModelError(what, where=call.outputs[0].name, why=why, hint=hint)
