"""Floats judged as TOSA judges them: what an op may give, where it is defined up to an error bound (section 1.8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.reference.model import evaluate
from tosaic.support.attributes import ints_of
from tosaic.support.functions import body_of, computing_ops, returned, retype, standalone
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, shape_of
from tosaic.support.tosa_builder import emit, rebuild
from tosaic.support.tosa_ops import BOUNDED, data_operands
from tosaic.support.values import producer

Rule = Callable[[np.ndarray], np.ndarray]

_FRACTION = 2.0**-23  # a unit in the last place of 1.0
_LEAST = 2.0**-126  # results below are subnormal, which may be flushed
_DOT = 3.0  # a product of f32 may be several of bf16: 6 * KS * sum |a b| * 2^-24 (conformance suite, dot products)
_RESIZE = 0.006  # of the largest input (conformance suite, RESIZE)

# Each monotone function, and its bound at x in units of |f(x)| * 2^-23: the conformance suite's base bounds with the
# share of x; sigmoid has that of the exp in it, log that of erf.
_FUNCTIONS: dict[str, tuple[Rule, Rule]] = {
    "tosa.exp": (np.exp, lambda x: 3 + np.abs(x)),
    "tosa.sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: 4 + np.abs(x)),
    "tosa.tanh": (np.tanh, lambda x: 12 + 4 * np.abs(x)),
    "tosa.log": (np.log, lambda x: np.full_like(x, 5.0)),
    "tosa.erf": (np.vectorize(math.erf, otypes=[np.float64]), lambda x: np.full_like(x, 5.0)),
    "tosa.rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: np.full_like(x, 2.0)),
}
_ROUNDED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "tosa.add": np.add, "tosa.sub": np.subtract, "tosa.mul": np.multiply,
    "tosa.maximum": np.maximum, "tosa.minimum": np.minimum,
}  # fmt: skip
_DOTS = {"tosa.conv2d", "tosa.depthwise_conv2d", "tosa.conv3d", "tosa.transpose_conv2d", "tosa.matmul",
         "tosa.reduce_sum", "tosa.avg_pool2d"}  # fmt: skip


class UnknownBoundError(Exception):
    """No bound is known here for a combination of ops."""


@dataclass(frozen=True)
class Range:
    """The least and the greatest value that each element may have."""

    low: np.ndarray
    high: np.ndarray

    @property
    def exact(self) -> bool:
        return bool((self.low == self.high).all())

    def widened(self, error: np.ndarray) -> Range:
        return Range(self.low - error, self.high + error)


def beyond_bounds(function: ir.Operation, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
    """The first element of `outputs` that TOSA does not allow for a function of `inputs`; empty where all are allowed.

    What is defined to the bit has one value; from the first op on that is not, ranges are carried through the others.

    Raises:
        UnknownBoundError: the function holds an op whose bound is not known here.
    """
    for number, (range_, got) in enumerate(zip(allowed(function, inputs), outputs, strict=True)):
        wrong = ~((range_.low <= got) & (got <= range_.high) | (np.isnan(range_.low) & np.isnan(got)))
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            low, high = range_.low[index], range_.high[index]
            count = f"{int(wrong.sum())} of {wrong.size}"
            return (
                f"output {number}{list(index)} is {got[index]}, TOSA allows {low:g} to {high:g} ({count} are outside)"
            )
    return ""


def allowed(function: ir.Operation, inputs: Sequence[np.ndarray]) -> list[Range]:
    """What each result of a function may be.

    Raises:
        UnknownBoundError: it holds an op whose bound is not known here.
    """
    module = standalone(function)
    (kernel,) = functions(module).values()
    values, magnitudes = _evaluated(kernel, inputs)
    ranges = {argument: _one(array) for argument, array in zip(body_of(kernel).arguments, inputs, strict=True)}
    for op in computing_ops(kernel):
        given = [_of(operand, ranges) for operand in data_operands(op)]
        defined = op.name not in BOUNDED or str(element_type(op.results[0])) != "f32"
        if defined and all(range_.exact for range_ in given):
            ranges.update((result, _one(values[result])) for result in op.results)
        else:
            ranges[op.results[0]] = _carry(op, given, values[op.results[0]], magnitudes.get(op.results[0]))
    return [_of(result, ranges) for result in returned(kernel)]


def _evaluated(
    kernel: ir.Operation, inputs: Sequence[np.ndarray]
) -> tuple[dict[ir.Value, np.ndarray], dict[ir.Value, np.ndarray]]:
    """The reference model's value of every result, and sum |a b| behind each sum of products of floats."""
    module = standalone(kernel)
    (main,) = functions(module).values()
    block = body_of(main)
    end = block.operations[len(block.operations) - 1].operation
    results: list[tuple[ir.Value, ir.Value]] = []
    dots: list[tuple[ir.Value, ir.Value]] = []
    with module.context, end.location, ir.InsertionPoint(end):
        for ours, theirs in zip(computing_ops(kernel), computing_ops(main), strict=True):
            results += zip(ours.results, theirs.results, strict=True)
            if theirs.name in _DOTS and str(element_type(theirs.results[0])) == "f32":
                data = [emit("abs", [one], shape_of(one), "f32") for one in data_operands(theirs)]
                operands = [*data, *list(theirs.operands)[len(data) :]]
                dots.append((ours.results[0], rebuild(theirs, operands, theirs.results[0].type)))
        ir.Operation.create("func.return", operands=[value for _, value in (*results, *dots)])
    end.erase()
    retype(main)
    arrays = evaluate(module, inputs)
    values = dict(zip((value for value, _ in results), arrays[: len(results)], strict=True))
    return values, dict(zip((value for value, _ in dots), arrays[len(results) :], strict=True))


def _carry(op: ir.Operation, given: list[Range], value: np.ndarray, magnitude: np.ndarray | None) -> Range:
    if magnitude is not None and all(range_.exact for range_ in given):
        error = 2 * _DOT * _terms(op) * magnitude.astype(np.float64) * _FRACTION / 2
        return _one(value).widened(error + _LEAST)
    if op.name == "tosa.resize" and given[0].exact:
        return _one(value).widened(np.array(_RESIZE * np.abs(given[0].low).max(initial=0.0)))
    if op.name == "tosa.reciprocal":
        if ((given[0].low <= 0) & (given[0].high >= 0)).any():
            raise UnknownBoundError("a reciprocal of what may be 0")
        return _rounded([1 / given[0].low, 1 / given[0].high], 1.0)
    if op.name in _FUNCTIONS:
        function, bound = _FUNCTIONS[op.name]
        ends = [
            (function(x), np.abs(function(x)) * bound(x) * _FRACTION + _LEAST) for x in (given[0].low, given[0].high)
        ]
        lows, highs = [y - error for y, error in ends], [y + error for y, error in ends]
        return Range(np.minimum(*lows), np.maximum(*highs))
    if op.name in _ROUNDED and str(element_type(op.results[0])) == "f32":
        combine = _ROUNDED[op.name]
        corners = [combine(a, b) for a in (given[0].low, given[0].high) for b in (given[1].low, given[1].high)]
        return _rounded(corners, 0.5)
    if op.name == "tosa.negate" and str(element_type(op.results[0])) == "f32":
        return Range(-given[0].high, -given[0].low)
    if op.name in ("tosa.clamp", "tosa.cast", "tosa.reshape", "tosa.identity"):
        return Range(*(_monotone(op, end) for end in (given[0].low, given[0].high)))
    raise UnknownBoundError(f"{op.name} of floats")


def _monotone(op: ir.Operation, x: np.ndarray) -> np.ndarray:
    if op.name == "tosa.reshape":
        return x.reshape(shape_of(op.results[0]))
    if op.name == "tosa.clamp":
        attribute = ir.FloatAttr if str(element_type(op.results[0])) == "f32" else ir.IntegerAttr
        low, high = (attribute(op.attributes[name]).value for name in ("min_val", "max_val"))
        return np.clip(x, low, high)
    kind = numpy_dtype(element_type(op.results[0]))
    if op.name == "tosa.cast" and np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        return np.clip(np.rint(x), limits.min, limits.max)
    return x


def _terms(op: ir.Operation) -> int:
    """How many products or elements an element of the result is the sum of, the bias among them."""
    if op.name == "tosa.matmul":
        return shape_of(op.operands[0])[-1]
    if op.name == "tosa.reduce_sum":
        return math.prod(shape_of(op.operands[0])) // max(1, math.prod(shape_of(op.results[0])))
    if op.name == "tosa.avg_pool2d":
        return math.prod(ints_of(op, "kernel"))
    weights = shape_of(op.operands[1])
    return math.prod(weights[:2] if op.name == "tosa.depthwise_conv2d" else weights[1:]) + 1


def _of(value: ir.Value, ranges: dict[ir.Value, Range]) -> Range:
    if value in ranges:
        return ranges[value]
    known = constant_value(value)
    if known is None:
        raise UnknownBoundError(f"what {producer(value)} makes")
    return _one(known)


def _one(array: np.ndarray) -> Range:
    return Range(array.astype(np.float64), array.astype(np.float64))


def _rounded(corners: Sequence[np.ndarray], ulps: float) -> Range:
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return Range(low - np.abs(low) * ulps * _FRACTION - _LEAST, high + np.abs(high) * ulps * _FRACTION + _LEAST)
