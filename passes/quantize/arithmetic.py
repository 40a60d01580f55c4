"""Sums, products and comparisons of quantized tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import requantize, scale_by, widen
from tosaic.passes.quantize.quantization import float_constant, quantize, quantized_view
from tosaic.passes.rewrite import Replacement, pattern
from tosaic.support.attributes import int_of
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.quantization import LEAST_SCALE, Quantization
from tosaic.support.tosa_builder import emit, mul
from tosaic.support.values import producer

# Head room of a sum in i32: 8 + 20 and 16 + 15 bits, less one because each term is scaled by at most 1/2.
_PRE_SHIFT = {"i8": 20, "i16": 15}
# Parts of the result's step that both operands may be whole numbers of, as powers of two, and units in such a part:
# Vela gives the operands of a sum 20 bits of room.
_PART_BITS, _UNITS = (5, 6, 7), 1 << 13
# Of an operand of a sum that fits i32.
_TERM_BITS = 30
# A part of a result's step that no result shows.
_UNSEEN = 1 / 64
_FACTOR_BITS = {"i8": 15, "i16": 14}


@dataclass(frozen=True)
class _Term:
    """An operand of a sum: stored integers with their quantization, or a constant."""

    stored: ir.Value | None
    quantization: Quantization | None
    values: np.ndarray | None

    @property
    def storage(self) -> str:
        """The type of the stored integers; none of a constant."""
        return self.quantization.storage if self.quantization else ""

    @property
    def magnitude(self) -> float:
        """A scale that stands for the size of the operand."""
        if self.quantization is not None:
            return self.quantization.scale
        assert self.values is not None
        return float(np.abs(self.values).max(initial=0.0)) / 128 or LEAST_SCALE

    def whole(self, unit: float, slack: float, grain: int = 1) -> int:
        """The units that a step is worth, a multiple of `grain` at most `slack` away from what it is; 0 for none."""
        factor = self.quantization.scale / unit if self.quantization else 0.0
        nearest = round(factor / grain) * grain
        return nearest if abs(nearest - factor) <= slack else 0

    def in_unit(self, unit: float, slack: float = 0.0, grain: int = 1) -> ir.Value:
        """The operand as i32 in multiples of `unit`; a factor that is so near a multiple of `grain` becomes that."""
        if self.stored is not None and self.quantization is not None:
            factor = self.whole(unit, slack, grain) or self.quantization.scale / unit
            return scale_by(self.stored, "i32", [factor], self.quantization.zero_point)
        assert self.values is not None
        return constant(np.rint(self.values / unit).astype(np.int32))


@lowers("tosa.add", "tosa.sub")
def add(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """Both operands in one fine unit of i32, summed, and rescaled once."""
    total = _aligned(op.operands[0], op.operands[1], out.scale)
    if total is None:
        return None
    a, b, unit = total
    return requantize(emit(op.name.removeprefix("tosa."), [a, b], shape_of(op.results[0]), "i32"), [unit], out)


@lowers("tosa.mul")
def hoist_positive_factor(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """`qcast<s>(x * c)` -> `qcast<s/c>(x)` for a positive constant: the factor costs nothing."""
    for x, other in (op.operands[:2], reversed(op.operands[:2])):
        factor = float_constant(other)
        if factor is None or factor.size == 0 or shape_of(x) != shape_of(op.results[0]):
            continue
        value = float(factor.reshape(-1)[0])
        if value > 0 and (factor == value).all():
            return quantize(x, out.scaled(1 / value))
    return None


@lowers("tosa.mul")
def multiply(op: ir.Operation, out: Quantization) -> ir.Value | None:
    """The product in i32 of values without their zero points."""
    factors = [_term(operand) for operand in list(op.operands)[:2]]
    if factors[0] is None or factors[1] is None:
        return None
    storages = {factor.quantization.storage for factor in factors if factor and factor.quantization}
    if not storages or not storages <= _FACTOR_BITS.keys():
        return None
    bits = min(_FACTOR_BITS[storage] for storage in storages)
    integers, unit = [], 1.0
    for factor in factors:
        assert factor is not None
        integer, scale = _factor(factor, bits)
        integers.append(integer)
        unit *= scale
    return requantize(mul(integers[0], integers[1], "i32"), [unit], out)


@pattern("tosa.greater", "tosa.greater_equal", "tosa.equal")
def compare(op: ir.Operation) -> Replacement:
    """Comparison of i32; with a constant the threshold is exact."""
    views = [quantized_view(operand) for operand in op.operands]
    result = ir.RankedTensorType(op.results[0].type)
    name = op.name.removeprefix("tosa.")
    for place, view in enumerate(views):
        threshold = float_constant(op.operands[1 - place])
        if view is not None and threshold is not None:
            stored, quantization = view
            limit = constant(_limit(name, threshold / quantization.scale, below=place == 1))
            operands = [widen(stored, quantization.zero_point), limit]
            return emit(name, operands[::-1] if place else operands, result.shape, "i1")
    if views[0] is None or views[1] is None:
        return None
    aligned = _aligned(op.operands[0], op.operands[1])
    return None if aligned is None else emit(name, list(aligned[:2]), result.shape, "i1")


def _limit(name: str, threshold: np.ndarray, below: bool) -> np.ndarray:
    """The i32 that takes the place of a threshold for whole numbers; nothing quantized is as large as its ends.

    Args:
        below: whether numbers below it are asked for, else those above it.
    """
    nearest = np.rint(threshold)
    threshold = np.where(np.float32(nearest) == np.float32(threshold), nearest, threshold)
    if name == "equal":
        whole = np.where(threshold == nearest, nearest, np.inf)
    else:
        whole = np.floor(threshold) if (name == "greater") != below else np.ceil(threshold)
    return np.clip(whole, -(2.0**31), 2.0**31 - 1).astype(np.int32)


@pattern("tosa.argmax")
def argmax(op: ir.Operation) -> Replacement:
    """The scale is positive: the largest stored integer is the largest value, and that of its complement the least."""
    negate = producer(op.operands[0], "tosa.negate")
    view = quantized_view(negate.operands[0] if negate else op.operands[0])
    if view is None or view[1].storage not in _PRE_SHIFT:
        return None
    stored, quantization = view
    if negate:
        stored = emit("bitwise_not", [stored], shape_of(stored), quantization.storage)
    return emit("argmax", [stored], shape_of(op.results[0]), "i32", axis=int_of(op, "axis"))


PATTERNS = [compare, argmax]


def _term(value: ir.Value) -> _Term | None:
    values = float_constant(value)
    if values is not None:
        return _Term(None, None, values) if np.isfinite(values).all() else None
    view = quantized_view(value)
    return None if view is None else _Term(view[0], view[1], None)


def _aligned(a: ir.Value, b: ir.Value, scale: float = 0.0) -> tuple[ir.Value, ir.Value, float] | None:
    """Both operands as i32 in a common unit, and the unit; None where they are not quantized.

    Where both are whole numbers of a small part of `scale`, the result's, so are they in the unit: but for zeros below,
    sums then fit 16 bits, and a shift rounds them. Else the unit is fine, and the larger factor to it a power of two.
    So is the other a whole number, a product that rounds nothing. A factor is taken to be whole where all that this can
    move is a small part of `scale`. Two operands of one scale are exact in it, and Ethos-U reads them as they are.
    """
    first, second = _term(a), _term(b)
    if first is None or second is None:
        return None
    storages = {term.storage for term in (first, second) if term.storage}
    if not storages or not storages <= set(_PRE_SHIFT):
        return None
    scales = {None if term.quantization is None else term.quantization.scale for term in (first, second)}
    if len(scales) == 1 and len(storages) == 1:
        return first.in_unit(first.magnitude), second.in_unit(first.magnitude), first.magnitude
    widest = max(storages, key=lambda storage: int(storage[1:]))
    unseen = _UNSEEN * scale / 2.0 ** int(widest[1:])
    fine = max(2 * term.magnitude / 2.0 ** _PRE_SHIFT[term.storage or widest] for term in (first, second))
    parts = (scale / (1 << bits) for bits in _PART_BITS if scale)
    most = (1 << _TERM_BITS - int(widest[1:])) // _UNITS
    counted = ((part, [term.whole(part, unseen / part) for term in (first, second)]) for part in parts)
    whole = (part for part, counts in counted if min(counts) > 0 and max(counts) <= most)
    unit, grain = next(((part / _UNITS, _UNITS) for part in whole), (fine, 1))
    return first.in_unit(unit, unseen / unit, grain), second.in_unit(unit, unseen / unit, grain), unit


def _factor(term: _Term, bits: int) -> tuple[ir.Value, float]:
    """An operand of a product as i32, and its scale."""
    if term.stored is not None and term.quantization is not None:
        return widen(term.stored, term.quantization.zero_point), term.quantization.scale
    assert term.values is not None
    largest = float(np.abs(term.values).max(initial=0.0))
    scale = 2.0 ** (math.ceil(math.log2(largest)) - bits) if largest else 1.0
    return constant(np.rint(term.values / scale).astype(np.int32)), scale
