"""A pointwise f32 expression with one quantized input becomes one TABLE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tosaic.passes.quantize.multipliers import requantize
from tosaic.passes.quantize.pointwise import evaluate, is_known
from tosaic.passes.quantize.quantization import float_constant, quantization_of, stays_float, storage
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import emit, rescale
from tosaic.support.tosa_ops import data_operands
from tosaic.support.values import producer

# An expression of these alone is cheaper as CLAMP and RESCALE.
_CHEAPER = {"tosa.clamp", "tosa.identity", "tosa.maximum", "tosa.minimum"}
_INTERPOLATION = 128  # a TABLE of i16 has 513 entries, 128 inputs apart, and a result in 1/128 (TOSA 1.0, TABLE)
_NODES = np.arange(-32768, 32769, _INTERPOLATION)
_STORED = np.arange(-32768, 32768)
_ZOOMS = (0, 3, 7)  # with 2^7, inputs next to 0 have entries of their own
# The energy of the error over all inputs, in parts of the signal's: 66 dB are wanted, 48 dB needed. int8 has some 50.
_WANTED, _NEEDED = 10**-6.6, 10**-4.8
_STEPS = 8
_NEXT_TO_0 = np.abs(_STORED) <= _INTERPOLATION

Function = Callable[[np.ndarray], np.ndarray]


@dataclass
class _Expression:
    """The ops between one quantized value and a cast."""

    shape: tuple[int, ...]
    ops: list[ir.Operation] = field(default_factory=list)
    source: ir.Value | None = None

    def grow(self, value: ir.Value) -> bool:
        """Take in what computes `value`; False when the expression is not pointwise in one quantized value."""
        op = producer(value)
        if op is None:
            return False
        if _scalar(value) is not None:
            return True
        if shape_of(value) != self.shape:
            return False
        if op.name == "quant.dcast":
            first = self.source is None
            self.source = op.operands[0] if first else self.source
            return first or op.operands[0] == self.source
        if not is_known(op) or stays_float(op):
            return False
        if op not in self.ops:
            if not all(self.grow(operand) for operand in data_operands(op)):
                return False
            self.ops.append(op)
        return True

    def compute(self, value: ir.Value, source: np.ndarray) -> np.ndarray:
        """The real values of `value` where the quantized value's reals are `source`."""
        scalar = _scalar(value)
        if scalar is not None:
            return np.full(source.shape, scalar)
        op = producer(value)
        assert op is not None, "an expression ends at its source"
        if op.name == "quant.dcast":
            return source
        return evaluate(op, [self.compute(operand, source) for operand in data_operands(op)])


def table_of(value: ir.Value, out: Quantization) -> ir.Value | None:
    """The stored integers of `qcast(value)` as a TABLE of its one quantized input, or None.

    An int16 expression that no TABLEs follow over its range stays float.
    """
    expression = _Expression(shape_of(value))
    if not expression.grow(value) or expression.source is None or all(_is_cheaper(op) for op in expression.ops):
        return None
    quantization = quantization_of(expression.source)
    if quantization.axis is not None:
        return None
    if (quantization.storage, out.storage) == ("i8", "i8"):
        reals = expression.compute(value, quantization.dequantize(np.arange(-128, 128)))
        entries = out.quantize(np.nan_to_num(reals, posinf=1e300, neginf=-1e300)).astype(np.int8)
        return emit("table", [storage(expression.source, quantization), constant(entries)], expression.shape, "i8")
    if quantization.storage == "i16" and out.storage in ("i8", "i16"):
        tables = _tables(lambda stored: expression.compute(value, quantization.dequantize(stored)), out)
        if tables is not None:
            return _interpolated(storage(expression.source, quantization), tables, out)
        for op in expression.ops:
            op.attributes["tosaic.float"] = ir.StringAttr.get("no TABLE follows it")
    return None


def _tables(function: Function, out: Quantization) -> list[np.ndarray] | None:
    """What TABLEs sum up to the function: one, or more where its lines are too coarse near 0, a pole or a bend.

    Each further one holds what those before it lack at inputs 2^zoom times nearer to 0, and 0 at its ends, where inputs
    that are farther saturate. They are as many as give what is wanted. There are more where values next to 0 would be
    off by steps: these weigh little among all inputs, and may be most of the data. Where none gives what is wanted, one
    is taken; None where that is not enough.
    """
    low, high = out.dequantize(np.array([out.low, out.high]))
    exact = function(_STORED)
    defined, wanted = ~np.isnan(exact), np.clip(exact, low, high)
    tables: list[np.ndarray] = []
    signal, noise = float(np.square(wanted[defined]).sum()), list[float]()
    for zoom in _ZOOMS:
        points = _NODES / 2.0**zoom
        table = _held(function(points), low, high) - _sum(tables, points)
        if zoom:
            table[[0, -2, -1]] = 0
        tables.append(table)
        error = np.clip(_sum(tables, _STORED), low, high) - wanted
        noise.append(float(np.square(error[defined]).sum()))
        if noise[-1] <= _WANTED * signal and np.abs(error[defined & _NEXT_TO_0]).max(initial=0.0) <= _STEPS * out.scale:
            return tables
    if noise[-1] <= _WANTED * signal:
        return tables
    return tables[:1] if noise[0] <= _NEEDED * signal else None


def _sum(tables: Sequence[np.ndarray], stored: np.ndarray) -> np.ndarray:
    """What `tables` give for inputs."""
    zoomed = [np.clip(stored * 2.0**zoom, -32768, 32767) for zoom in _ZOOMS[: len(tables)]]
    return sum((np.interp(x, _NODES, table) for x, table in zip(zoomed, tables, strict=True)), np.zeros(stored.shape))


def _interpolated(x: ir.Value, tables: Sequence[np.ndarray], out: Quantization) -> ir.Value:
    """Entries and the slopes between them are i16 (TOSA 1.0, TABLE)."""
    largest = max(float(max(np.abs(table).max(), np.abs(np.diff(table)).max())) for table in tables)
    unit, shape = (largest or 1.0) / 32766, shape_of(x)
    total: ir.Value | None = None
    for zoom, table in zip(_ZOOMS, tables, strict=False):
        index = rescale(x, "i16", [1 << 30], [30 - zoom]) if zoom else x
        fine = emit("table", [index, constant(np.rint(table / unit).astype(np.int16))], shape, "i32")
        total = fine if total is None else emit("add", [total, fine], shape, "i32")
    assert total is not None
    return requantize(total, [unit / _INTERPOLATION], out)


def _held(reals: np.ndarray, low: float, high: float) -> np.ndarray:
    """Entries clipped to what is held; where a chord leaves it, up to half of that further, to keep its slope."""
    reals, reach = np.nan_to_num(reals, posinf=1e300, neginf=-1e300), (high - low) / 2
    held = (low <= reals) & (reals <= high)
    leaving = np.convolve(held, [1, 1, 1], "same") > 0
    return np.where(leaving, np.clip(reals, low - reach, high + reach), np.clip(reals, low, high))


def _is_cheaper(op: ir.Operation) -> bool:
    if op.name != "tosa.mul":
        return op.name in _CHEAPER
    factors = [scalar for operand in data_operands(op) if (scalar := _scalar(operand)) is not None]
    return len(factors) == 1 and factors[0] > 0


def _scalar(value: ir.Value) -> float | None:
    """The one value of a constant that is the same everywhere."""
    if producer(value, "tosa.const", "tosa.reshape", "quant.dcast") is None:
        return None
    values = float_constant(value)
    if values is None or values.size == 0 or (values != values.reshape(-1)[0]).any():
        return None
    return float(values.reshape(-1)[0])
