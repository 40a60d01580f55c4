"""Recurrent layers in integers.

The sums before a gate are i32, in a unit no finer than that of the products; gates are i16 in units of 2**-15; what
remembers is i32, so that a gate that is all but open forgets 2**-15 of it in a step and no more. h alone, which the
products read, has the format of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tosaic.passes.quantize.composites import binary, composite_of, interpolated, lookup
from tosaic.passes.quantize.compute import ACCUMULATOR, LIMITS, largest_magnitude, offsets_of, overflow, scaled_bias
from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize, widen
from tosaic.passes.quantize.quantization import (
    as_quantized,
    dequantized_view,
    float_constant,
    quantization_of,
    quantized_view,
)
from tosaic.support.loops import over_rows
from tosaic.support.mlir import constant, constant_value, ir, numpy_dtype, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import element, emit, mul, rescale, reshape, sliced, zero_point
from tosaic.support.values import users

_UNIT = 2**15  # of a gate
_SPAN = 6.0  # where tanh is 1 but for less than such a unit
_FINEST = 18  # bits behind the point of a sum: a hundredth of the step between two entries of a gate's table
_ROOM = 0.5  # of an accumulator, for the bias
_MOST_REMEMBERED = 22
_KEPT = 11  # bits of a factor behind its first
_COARSEST = 12  # of these: what a table reads is scaled up by no more than a third, and has no step above 2**-12

_Values: TypeAlias = Sequence["ir.Value"]


@lowers("func.call")
def recurrent(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """A layer of `frontend/recurrent.py`: its result in format `out`, and an LSTM's cell in that of who reads it.

    It stays float where weights or states are so large that its sums leave no bits for what its gates tell apart.
    """
    kind = next((kind for kind in _STEPS if composite_of(op, kind) is not None), None)
    view = quantized_view(op.operands[0])
    if kind is None or view is None or view[1].storage != out.storage or out.storage not in ACCUMULATOR:
        return None
    x, format_x = view
    order = _ORDER.get(kind, (0,))
    from_x, from_h = _Product.of(op, format_x, 3, 5, order), _Product.of(op, out, 4, 6, order)
    memory = _memory(op, kind, shape_of(x)[1])
    wanted = [(op.operands[1], out), *((op.operands[number], memory) for number in _REMEMBERED[kind])]
    states = [stored for state, known in wanted if (stored := _stored(state, known)) is not None]
    if from_x is None or from_h is None or len(states) < len(wanted):
        return None
    bits = min(from_x.bits, from_h.bits)
    if kind != "rnn_relu" and min(bits, _bits(memory)) < _COARSEST:
        return None

    def step(row: ir.Value, known: _Values) -> tuple[ir.Value, _Values]:
        fresh, again = from_x.sums(row, bits), from_h.sums(known[0], bits)
        following = _STEPS[kind](fresh, again, bits, out, *([memory] if known[1:] else []), *known[1:])
        return following[0], following

    rows, last = over_rows(x, shape_of(op.operands[1])[3], out.storage, states, step)
    for cast in users(op.results[1]):
        if kind == "lstm" and cast.name == "quant.qcast":
            known = quantization_of(cast.results[0])
            cell = requantize(reshape(last[1], shape_of(cast.results[0])), [memory.scale], known)
            cast.results[0].replace_all_uses_with(as_quantized(cell, known))
    return rows


@dataclass(frozen=True)
class _Product:
    """x W^T + b of a row.

    Args:
        kernel: stored weights, [O, 1, 1, I].
        units: of the products, one for each of O.
        offsets: the bias in these.
        largest: the largest magnitude that a sum of products has.
    """

    source: Quantization
    kernel: np.ndarray
    units: Sequence[float]
    offsets: np.ndarray
    largest: int

    @staticmethod
    def of(op: ir.Operation, source: Quantization, weight: int, bias: int, order: Sequence[int]) -> _Product | None:
        """What a call says by the operands of these numbers; None where they are not known or not quantized.

        Args:
            order: the gates in the order in which the sums shall lie.

        Raises:
            PassError: an accumulator can overflow.
        """
        view, real = dequantized_view(op.operands[weight]), float_constant(op.operands[bias])
        kernel = None if view is None else constant_value(view[0])
        if view is None or kernel is None or real is None or view[1].axis not in (None, 0) or any(view[1].zero_points):
            return None
        rows = np.arange(len(kernel)).reshape(len(order), -1)[list(order)].ravel()
        kernel, real, given = kernel[rows], real[rows], np.broadcast_to(view[1].scales, len(kernel))[rows]
        accumulator = ACCUMULATOR[source.storage]
        # Weights so small that the bias would not fit the accumulator get a coarser scale.
        scales = np.maximum(given, np.abs(real) / (_ROOM * LIMITS[accumulator] * source.scale))
        kernel = np.rint(kernel * (given / scales)[:, None, None, None]).astype(np.int8)
        units = (source.scale * scales).tolist()
        offsets = scaled_bias(op, real, units, accumulator, len(kernel))
        magnitudes = np.abs(kernel.astype(np.int64)).reshape(len(kernel), -1).sum(1)
        largest = int((magnitudes * largest_magnitude(source) + np.abs(offsets)).max())
        if largest > LIMITS[accumulator]:
            raise overflow(op, "the sum of its weights times the largest input")
        return _Product(source, kernel, units, offsets, largest)

    @property
    def bits(self) -> int:
        """The bits behind the point of its sums: so few that these need no scaling up, and two of them fit i32."""
        coarsest = math.ceil(-math.log2(max(self.units))) - 1 if self.source.storage == "i8" else _FINEST
        return min(_FINEST, coarsest, 29 - math.ceil(math.log2(max(1, self.largest) * max(self.units))))

    def sums(self, row: ir.Value, bits: int) -> ir.Value:
        """Of [N, 1, 1, I] as i32 with `bits` behind the point."""
        kind, outputs = ACCUMULATOR[self.source.storage], len(self.kernel)
        points = [zero_point(self.source.zero_point, self.source.storage), zero_point(0, "i8")]
        operands = [row, constant(self.kernel), offsets_of(self.offsets, kind), *points]
        window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": element(kind)}
        total = emit("conv2d", operands, (shape_of(row)[0], 1, 1, outputs), kind, **window)
        units = np.asarray(self.units)
        if kind == "i32":  # whose factors below a shift of 31 keep their upper 16 bits, but small ones twelve of theirs
            finest = np.minimum(2.0 ** -(bits + 15), 2.0 ** (np.floor(np.log2(units)) - _KEPT))
            units = np.rint(units / finest) * finest
        return requantize(total, units.tolist(), Quantization.per_tensor("i32", 2.0**-bits, 0), largest=self.largest)


def _memory(op: ir.Operation, kind: str, steps: int) -> Quantization:
    """How an i32 remembers: a GRU mixes what it has with at most 1, an LSTM adds at most 1 to it in each step."""
    limit = 1.0 + max((_limit(op.operands[number]) for number in _REMEMBERED[kind]), default=0.0)
    most = limit + steps if kind == "lstm" else limit
    return Quantization.per_tensor("i32", 2.0 ** -min(_MOST_REMEMBERED, 30 - math.ceil(math.log2(most))), 0)


def _limit(state: ir.Value) -> float:
    """The largest magnitude that a state can have; 0 where it is not quantized, and goes nowhere."""
    known, view = float_constant(state), quantized_view(state)
    if known is not None:
        return float(np.abs(known).max())
    return 0.0 if view is None else view[1].scale * largest_magnitude(view[1])


def _bits(memory: Quantization) -> int:
    return round(-math.log2(memory.scale))


def _stored(value: ir.Value, out: Quantization) -> ir.Value | None:
    """A state in format `out`; None where it is not quantized."""
    known = float_constant(value)
    if known is not None:
        return constant(out.quantize(known).astype(numpy_dtype(element(out.storage))))
    view = quantized_view(value)
    return None if view is None else requantize(view[0], [view[1].scale], out, view[1].zero_point)


def _gru(x: ir.Value, h: ir.Value, bits: int, out: Quantization, remembered: Quantization, memory: ir.Value) -> _Values:
    size = shape_of(memory)[3]
    gates = _sigmoid(binary("add", _some(x, 0, 2 * size), _some(h, 0, 2 * size)), bits)
    reset, update = (widen(_some(gates, start, size), 0) for start in (0, size))
    new = _tanh(binary("add", _some(x, 2 * size, size), _times(_some(h, 2 * size, size), reset)), bits)
    fresh = requantize(new, [1 / _UNIT], remembered)
    memory = binary("add", fresh, _times(binary("sub", memory, fresh), update))
    return requantize(memory, [remembered.scale], out), memory


def _lstm(
    x: ir.Value, h: ir.Value, bits: int, out: Quantization, remembered: Quantization, memory: ir.Value
) -> _Values:
    size, sums = shape_of(memory)[3], binary("add", x, h)
    gates = _sigmoid(_some(sums, 0, 3 * size), bits)
    take, keep, give = (_some(gates, start, size) for start in range(0, 3 * size, size))
    taken = mul(take, _tanh(_some(sums, 3 * size, size), bits), "i32")
    kept = _times(memory, widen(keep, 0))
    memory = binary("add", kept, requantize(taken, [1 / _UNIT**2], remembered))
    result = mul(give, _tanh(memory, _bits(remembered)), "i32")
    return requantize(result, [1 / _UNIT**2], out), memory


def _rnn_tanh(x: ir.Value, h: ir.Value, bits: int, out: Quantization) -> _Values:
    return (requantize(_tanh(binary("add", x, h), bits), [1 / _UNIT], out),)


def _rnn_relu(x: ir.Value, h: ir.Value, bits: int, out: Quantization) -> _Values:
    total = binary("add", x, h)
    nothing = constant(np.zeros([1] * 4, np.int32))
    return (requantize(emit("maximum", [total, nothing], shape_of(total), "i32"), [2.0**-bits], out),)


_STEPS: dict[str, Callable[..., _Values]] = {
    "gru": _gru, "lstm": _lstm, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu,
}  # fmt: skip
_ORDER = {"lstm": (0, 1, 3, 2)}
"""The gates in another order than torch's: those that go through one table lie together."""
_REMEMBERED = {"gru": (1,), "lstm": (2,), "rnn_tanh": (), "rnn_relu": ()}
"""The operands that are carried as i32 from step to step; see `_memory`."""


def _some(value: ir.Value, start: int, size: int) -> ir.Value:
    """`size` channels from `start` on."""
    return sliced(value, (0, 0, 0, start), (*shape_of(value)[:3], size))


def _times(value: ir.Value, gate: ir.Value) -> ir.Value:
    """An i32 times a gate that is widened."""
    return emit("mul", [value, gate, constant(np.array([15], np.int8))], shape_of(value), "i32")


def _sigmoid(sums: ir.Value, bits: int) -> ir.Value:
    """(1 + tanh(x / 2)) / 2 as i16 in units of 2**-15, by the table of `_tanh`."""
    one = constant(np.full([1] * len(shape_of(sums)), _UNIT << 7, np.int32))
    doubled = binary("add", interpolated(_index(sums, bits + 1), _entry, _UNIT), one)
    return rescale(doubled, "i16", [1 << 30], [38])


def _tanh(sums: ir.Value, bits: int) -> ir.Value:
    """tanh of sums with `bits` behind the point, as i16 in units of 2**-15."""
    return lookup(_index(sums, bits), _entry, _UNIT)


def _index(sums: ir.Value, bits: int) -> ir.Value:
    return requantize(sums, [2.0**-bits], Quantization.per_tensor("i16", _SPAN / _UNIT, 0))


def _entry(index: np.ndarray) -> np.ndarray:
    return np.tanh(index * _SPAN / _UNIT)
