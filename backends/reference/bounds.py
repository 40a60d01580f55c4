"""Floats judged as TOSA judges them: what an op may give, where it is defined up to an error bound.

The bounds are those of TOSA 1.0 for f32 (section 1.8 and the pages of the ops). The figures are those that the verifier
of its reference model checks, per element: ABS_ERROR, ULP, DOT_PRODUCT, REDUCE_PRODUCT, MAX_RELATIVE and PRECOMPUTED of
the conformance suite. No Fourier transform is among them: `legalize` leaves none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.reference.model import evaluate, evaluate_precisely, serialize
from tosaic.support.attributes import int_of, ints_of
from tosaic.support.functions import body_of, computing_ops, inputs_of, main_of, returned, standalone
from tosaic.support.loops import unroll
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, shape_of
from tosaic.support.tosa_ops import BOUNDED, POINTWISE, data_operands
from tosaic.support.values import producer

Array = np.ndarray

_FRACTION = 2.0**-23  # a unit in the last place of 1.0
_NORMAL = 2.0**-126  # what is smaller is subnormal: it counts as this here, and may be flushed
_LARGEST = float(np.finfo(np.float32).max)
_DOT = 6.0  # a product of f32 may be several of bf16; twice the products, in halves of a unit
_RESIZE = 0.006, 20.0  # of the largest input, or units in the last place
_SINE = 2.0**-11.5  # of the angle: half of the bits of an f32
_TRIES = 64  # combinations of integers for an op


def _ulp(y: Array) -> Array:
    """A unit in the last place; 0 where nothing but `y` itself is allowed."""
    finite = np.where(np.isfinite(y), np.abs(y), 0.0)
    return np.where(finite > 0, 2.0 ** np.floor(np.log2(np.maximum(finite, _NORMAL))) * _FRACTION, 0.0)


def _relative(share: Array, y: Array, least: float = 0.0) -> Array:
    """`share` units of |y| * 2^-23, or `least` of 2^-23."""
    return np.maximum(share * np.maximum(np.abs(y), _NORMAL), least) * _FRACTION


def _power_error(log: Array, exponent: Array) -> Array:
    """That of exp, of the log before it, which is absolute near 0, and of the product between."""
    return 3 + exponent * (2 * log + 5.5 * np.maximum(log, 0.1))


# Each function of one float and its error at x, where it is y.
_FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "tosa.exp": (np.exp, lambda x, y: _relative(3 + 2 * np.abs(x), y)),
    "tosa.sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x, y: _relative(2 * (1 + np.abs(x)), y)),
    "tosa.tanh": (np.tanh, lambda x, y: _relative(12 + 8 * np.abs(x), y, 0.5)),
    "tosa.log": (np.log, lambda x, y: _relative(np.full_like(x, 5.0), y, 0.5)),
    "tosa.erf": (np.vectorize(math.erf, otypes=[np.float64]), lambda x, y: 5 * _ulp(y)),
    "tosa.rsqrt": (lambda x: 1 / np.sqrt(x), lambda x, y: 2 * _ulp(y)),
    "tosa.reciprocal": (lambda x: 1 / x, lambda x, y: _ulp(y)),
    "tosa.sin": (np.sin, lambda x, y: np.maximum(2 * _SINE * np.abs(x), math.pi * _NORMAL)),
    "tosa.cos": (np.cos, lambda x, y: _SINE * (1 + np.abs(x))),
    "tosa.negate": (np.negative, lambda x, y: np.zeros_like(x)),
    "tosa.abs": (np.abs, lambda x, y: np.zeros_like(x)),
    "tosa.ceil": (np.ceil, lambda x, y: np.zeros_like(x)),
    "tosa.floor": (np.floor, lambda x, y: np.zeros_like(x)),
}
_COMBINATIONS: dict[str, tuple[Callable[[Array, Array], Array], Callable[[Array, Array, Array], Array]]] = {
    "tosa.add": (np.add, lambda a, b, y: 0.5 * _ulp(y)),
    "tosa.sub": (np.subtract, lambda a, b, y: 0.5 * _ulp(y)),
    "tosa.mul": (np.multiply, lambda a, b, y: 0.5 * _ulp(y)),
    "tosa.maximum": (np.maximum, lambda a, b, y: np.zeros_like(y)),
    "tosa.minimum": (np.minimum, lambda a, b, y: np.zeros_like(y)),
    "tosa.pow": (np.power, lambda a, b, y: _relative(_power_error(np.abs(np.log(np.abs(a))), np.abs(b)), y)),
}
_DOTS = {"tosa.conv2d", "tosa.depthwise_conv2d", "tosa.conv3d", "tosa.transpose_conv2d", "tosa.matmul",
         "tosa.reduce_sum", "tosa.avg_pool2d"}  # fmt: skip
_ANCHORS = _DOTS | {"tosa.resize", "tosa.reduce_product"}
_TURNING = {"tosa.sin", "tosa.cos", "tosa.abs"}  # their slopes are 1 at most
_MONOTONE = {"tosa.clamp", "tosa.cast", "tosa.rescale"}


class UnknownBoundError(Exception):
    """No bound is known here for a combination of ops."""


@dataclass(frozen=True)
class ElementBounds:
    """The least and the greatest value that each element may have; both NaN where it must be NaN."""

    low: Array
    high: Array

    @property
    def exact(self) -> bool:
        return bool(((self.low == self.high) | np.isnan(self.low)).all())


_COMPARISONS: dict[str, Callable[[ElementBounds, ElementBounds], tuple[Array, Array]]] = {
    "tosa.greater": lambda a, b: (a.low > b.high, a.high > b.low),
    "tosa.greater_equal": lambda a, b: (a.low >= b.high, a.high >= b.low),
    "tosa.equal": lambda a, b: ((a.low == b.high) & (a.high == b.low), (a.low <= b.high) & (a.high >= b.low)),
}


def beyond_bounds(function: ir.Operation, inputs: Sequence[Array], outputs: Sequence[Array]) -> str:
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
            limits = f"TOSA allows {low:.9g} to {high:.9g} ({count} are outside)"
            return f"output {number}{list(index)} is {got[index]}, {limits}"
    return ""


def allowed(function: ir.Operation, inputs: Sequence[Array]) -> list[ElementBounds]:
    """What each result of a function may be.

    Raises:
        UnknownBoundError: it holds an op whose bound is not known here.
    """
    flat = standalone(function)
    unroll(flat)
    function = functions(flat)["main"]
    ops, arguments = computing_ops(function), list(body_of(function).arguments)
    results = [result for op in ops for result in op.results]
    values = dict(zip(results, evaluate(main_of(ops, arguments, results), inputs), strict=True))
    ranges = {argument: _one(array) for argument, array in zip(arguments, inputs, strict=True)}
    for op in ops:
        bounded = op.name in BOUNDED and _is_float(op.results[0])
        if not bounded and all(_of(operand, ranges).exact for operand in data_operands(op)):
            ranges.update((result, _one(values[result])) for result in op.results)
        else:
            with np.errstate(all="ignore"):
                ranges[op.results[0]] = _carry(op, ranges)
        ranges.update((result, _stored(ranges[result])) for result in op.results if _is_float(result))
    return [_of(result, ranges) for result in returned(function)]


def _carry(op: ir.Operation, ranges: dict[ir.Value, ElementBounds]) -> ElementBounds:
    given = [_of(operand, ranges) for operand in data_operands(op)]
    if op.name in BOUNDED - POINTWISE:
        return _anchor(op, ranges)
    if op.name == "tosa.select":
        return _selected(*given)
    if op.name in _MONOTONE and str(element_type(op.results[0])) != "i1":
        return _tried(op, [[given[0].low], [given[0].high]])
    if not _is_float(op.operands[0]):
        return _tried(op, _combinations(op, [_of(value, ranges) for value in inputs_of([op])]))
    if op.name in _COMPARISONS:
        low, high = _COMPARISONS[op.name](*given)
        return ElementBounds(low.astype(np.float64), high.astype(np.float64))
    if op.name in _FUNCTIONS:
        return _applied(op.name, given[0])
    if op.name in _COMBINATIONS:
        return _combined(op.name, *given)
    raise UnknownBoundError(f"{op.name} of floats")


def _anchor(op: ir.Operation, ranges: dict[ir.Value, ElementBounds]) -> ElementBounds:
    """What an op that is not pointwise may make of exact floats."""
    given = [_of(operand, ranges) for operand in data_operands(op)]
    if not all(range_.exact for range_ in given) or op.name not in _ANCHORS:
        raise UnknownBoundError(f"{op.name} of floats")
    module = main_of([op], inputs_of([op]), list(op.results))
    arrays = [_of(value, ranges).low.astype(np.float32) for value in inputs_of([op])]
    y, magnitude = evaluate_precisely(module, arrays)
    if op.name == "tosa.resize":
        share, ulps = _RESIZE
        return _around(y, y, np.maximum(share * np.abs(given[0].low).max(initial=0.0), ulps * _ulp(y)))
    if op.name == "tosa.reduce_product":
        factors = shape_of(op.operands[0])[int_of(op, "axis")]
        error = np.maximum(np.abs(y), _NORMAL) * math.expm1(factors * math.log1p(_FRACTION / 2))
        return _around(y, y, error)
    terms = _terms(op) + any(bias.low.any() for bias in given[2:])
    error = _DOT * terms * np.maximum(magnitude * _FRACTION / 2, _NORMAL)
    return _around(y, y, np.where(magnitude + error > _LARGEST, np.inf, np.where(magnitude == 0, 0.0, error)))


def _terms(op: ir.Operation) -> int:
    """How many products or elements an element of the result is the sum of, without the bias."""
    if op.name == "tosa.matmul":
        return shape_of(op.operands[0])[-1]
    if op.name == "tosa.reduce_sum":
        return shape_of(op.operands[0])[int_of(op, "axis")]
    if op.name == "tosa.avg_pool2d":
        return math.prod(ints_of(op, "kernel"))
    weights = shape_of(op.operands[1])
    return math.prod(weights[:2] if op.name == "tosa.depthwise_conv2d" else weights[1:])


def _applied(name: str, x: ElementBounds) -> ElementBounds:
    function, error = _FUNCTIONS[name]
    ends = function(x.low), function(x.high)
    least, most = np.fmin(*ends), np.maximum(*ends)  # NaN at one end alone is seen in `most`
    if name in _TURNING:
        beyond = (x.high - x.low - (most - least)) / 2
        least, most = least - beyond, most + beyond
    if name == "tosa.reciprocal":
        most = np.where((x.low <= 0) & (x.high >= 0) & (x.low < x.high), np.nan, most)
    return _around(least, most, np.maximum(error(x.low, ends[0]), error(x.high, ends[1])))


def _combined(name: str, left: ElementBounds, right: ElementBounds) -> ElementBounds:
    function, error = _COMBINATIONS[name]
    corners = [(a, b, function(a, b)) for a in (left.low, left.high) for b in (right.low, right.high)]
    results = [y for _, _, y in corners]
    errors = [error(*corner) for corner in corners]
    return _around(np.fmin.reduce(results), np.maximum.reduce(results), np.maximum.reduce(errors))


def _selected(condition: ElementBounds, left: ElementBounds, right: ElementBounds) -> ElementBounds:
    low, high = np.minimum(left.low, right.low), np.maximum(left.high, right.high)
    for which, taken in ((condition.low == 1, left), (condition.high == 0, right)):
        low, high = np.where(which, taken.low, low), np.where(which, taken.high, high)
    return ElementBounds(low, high)


def _combinations(op: ir.Operation, given: Sequence[ElementBounds]) -> list[list[Array]]:
    """All the integers that an op may be given."""
    steps = [range(int((range_.high - range_.low).max(initial=0)) + 1) for range_ in given]
    if math.prod(map(len, steps)) > _TRIES:
        raise UnknownBoundError(f"{op.name} of integers that floats before it may move far")
    return [
        [np.minimum(range_.low + step, range_.high) for step, range_ in zip(chosen, given, strict=True)]
        for chosen in itertools.product(*steps)
    ]


def _tried(op: ir.Operation, choices: Sequence[Sequence[Array]]) -> ElementBounds:
    """The hull of what the reference model makes of each choice of operands."""
    taken = inputs_of([op])
    module = serialize(main_of([op], taken, list(op.results)))
    kinds = [numpy_dtype(element_type(value)) for value in taken]
    found = [
        evaluate(module, [array.astype(kind) for array, kind in zip(choice, kinds, strict=True)])[0].astype(np.float64)
        for choice in choices
    ]
    return ElementBounds(np.minimum.reduce(found), np.maximum.reduce(found))


def _of(value: ir.Value, ranges: dict[ir.Value, ElementBounds]) -> ElementBounds:
    if value in ranges:
        return ranges[value]
    known = constant_value(value)
    if known is None:
        raise UnknownBoundError(f"what {producer(value)} makes")
    return _one(known)


def _one(array: Array) -> ElementBounds:
    return ElementBounds(array.astype(np.float64), array.astype(np.float64))


def _around(least: Array, most: Array, error: Array) -> ElementBounds:
    """From `least` to `most` but for an error; anything where that is infinite or `most` alone is NaN."""
    free = np.isinf(error) | (np.isnan(most) & ~np.isnan(least))
    return ElementBounds(np.where(free, -np.inf, least - error), np.where(free, np.inf, most + error))


def _stored(range_: ElementBounds) -> ElementBounds:
    """What f32 makes of it: too large a value is infinite, a subnormal one may be 0."""
    low, high = (np.where(np.abs(end) > _LARGEST, np.copysign(np.inf, end), end) for end in (range_.low, range_.high))
    return ElementBounds(
        np.where((low > 0) & (low < _NORMAL), 0.0, low), np.where((high > -_NORMAL) & (high < 0), 0.0, high)
    )


def _is_float(value: ir.Value) -> bool:
    return str(element_type(value)) == "f32"
