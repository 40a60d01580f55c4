"""Pointwise ops on integers and floats to one result: in lanes of MVE, or one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.mve_match import number
from tosaic.backends.cortex_m.kernels.pointwise_sketch import LaneSketch, PointwiseSketch
from tosaic.backends.cortex_m.program import reals
from tosaic.backends.cortex_m.program import values as lanes
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.pointwise import Elementwise, in_rows
from tosaic.backends.cortex_m.program.value_rescales import multiply_shifted, rescale, with_zero_point
from tosaic.backends.cortex_m.program.value_tables import interpolated, table
from tosaic.backends.cortex_m.program.values import CHANNEL, Value
from tosaic.support.attributes import bool_of, enum_of, float_of, int_of
from tosaic.support.errors import BackendError
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, element_type, functions, ir, parse, shape_of
from tosaic.support.tosa_ops import POINTWISE, REAL

_BITS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32, "f32": 32}
_OPS = (POINTWISE - REAL | {"tosa.ceil", "tosa.floor"}) - {"tosa.identity", "tosa.intdiv"}


@FAMILIES.register
class Pointwise(ProgramFamily):
    """Pointwise ops to one result: arithmetic, shifts, comparison, selection, RESCALE, CLAMP, TABLE, and on floats all
    but those that TOSA defines up to an error bound.

    Operands have the result's shape, or one element along any of its axes. Knobs: `lanes`, bits of a lane; `unroll`,
    vectors of an iteration; `beside`, how many of them alternate; `params`, whether tables and constants are read where
    they lie (`in_place`) or copied first (`scratch`).
    """

    name = "pointwise"

    def match(self, function: ir.Operation) -> Workload | None:
        results, body = returned(function), computing_ops(function)
        if len(results) != 1 or not body or any(op.name not in _OPS for op in body):
            return None
        if any(str(element_type(v)) not in _BITS for op in body for v in (*op.operands[:1], *op.results)):
            return None
        if _read(function) is None:
            return None
        attributes = {"function": str(function), "arguments": len(body_of(function).arguments)}
        names = "+".join(op.name.removeprefix("tosa.") for op in body)
        return Workload(self.name, f"{names} {shape_of(results[0])}", attributes, {})

    def sketch(self, workload: Workload) -> Sketched | None:
        function = str(workload.attributes["function"])
        return PointwiseSketch.of(function, _elementwise(function), number(workload, "arguments"))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        function, arguments = str(workload.attributes["function"]), number(workload, "arguments")
        what = _elementwise(function)
        found = {"lanes": LaneSketch.of(what, arguments, staged=False)}
        if any(what.staged(level) for level in what.levels if CHANNEL in level):
            found["channels"] = LaneSketch.of(what, arguments, staged=True)
        return found


@lru_cache(maxsize=256)
def _elementwise(text: str) -> Elementwise:
    module = parse(text)
    (function,) = functions(module).values()
    what = _read(function)
    if what is None:
        raise BackendError("the function is not pointwise")
    return what


class _NotCoveredError(Exception):
    """The function holds something that this family does not write."""


def _read(function: ir.Operation) -> Elementwise | None:
    """What a function computes; None where it is not covered."""
    with suppress(_NotCoveredError):
        return _Reader(function).read()
    return None


class _Reader:
    """Reads TOSA as values. Axes along which every operand is whole, or one element, are counted as one."""

    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        (result,) = returned(function)
        self.shape = shape_of(result)
        self.axes = _axes(function, self.shape)
        self.values: dict[ir.Value, Value] = {}

    def read(self) -> Elementwise:
        """The problem.

        Raises:
            _NotCoveredError: an op or an operand is not covered.
        """
        block, (result,) = body_of(self.function), returned(self.function)
        for i, argument in enumerate(block.arguments):
            if argument.uses:
                self.values[argument] = self._input(i, argument)
        for op in (operation.operation for operation in block.operations):
            if op.name == "tosa.const":
                self._constant(op.results[0])
        for op in computing_ops(self.function):
            self.values[op.results[0]] = self._op(op)
        extents = tuple(math.prod(self.shape[axis] for axis in axes) for axes in self.axes)
        return in_rows(Elementwise(self.values[result], extents, _bits(result) // 8))

    def _varies(self, value: ir.Value) -> frozenset[int]:
        """The axes that a tensor varies with, counted from the last."""
        padded = _padded(value, len(self.shape))
        return frozenset(i for i, axes in enumerate(reversed(self.axes)) if any(padded[axis] > 1 for axis in axes))

    def _input(self, index: int, value: ir.Value) -> Value:
        low, high = _range(value)
        return lanes.given(index, _bits(value) // 8, low, high, self._varies(value))

    def _constant(self, value: ir.Value) -> None:
        data = constant_value(value)
        if data is None or str(element_type(value)) not in _BITS:
            return
        data = reals.bits_of(data) if _is_real(value) else data.astype(np.int64)
        if data.size == 1:
            self.values[value] = lanes.number(int(data.item()))
        elif any(value in _spread(op) for op in computing_ops(self.function)):
            self.values[value] = lanes.array(data, self._varies(value))

    def _operands(self, op: ir.Operation, count: int) -> list[Value]:
        operands = list(op.operands)[:count]
        if any(operand not in self.values for operand in operands):
            raise _NotCoveredError
        return [self.values[operand] for operand in operands]

    def _op(self, op: ir.Operation) -> Value:
        bits, name = _bits(op.results[0]), op.name.removeprefix("tosa.")
        if name != "select" and (_is_real(op.operands[0]) or _is_real(op.results[0])):
            return self._real(op, name)
        if name in ("rescale", "table", "clamp", "cast"):
            return getattr(self, f"_{name}")(op, *self._operands(op, 1))
        if name in ("clz", "logical_left_shift", "logical_right_shift") and bits != 32:
            raise _NotCoveredError
        if name in _UNARY:
            return _UNARY[name](*self._operands(op, 1))
        if name in _BINARY:
            return _BINARY[name](*self._operands(op, 2))
        if name == "select":
            return lanes.select(*self._operands(op, 3))
        if name == "arithmetic_right_shift":
            a, amount = self._operands(op, 2)
            return lanes.shift_by(a, amount, left=False, rounding=bool_of(op, "round"), signed=True)
        if name == "mul":
            return self._mul(op, *self._operands(op, 2))
        raise _NotCoveredError

    def _real(self, op: ir.Operation, name: str) -> Value:
        if name == "cast":
            (a,), (source, target) = self._operands(op, 1), (op.operands[0], op.results[0])
            if "i1" in (str(element_type(source)), str(element_type(target))):
                raise _NotCoveredError
            return reals.from_real(a, _bits(target)) if _is_real(source) else reals.real("to_real", a)
        propagates = "nan_mode" not in op.attributes or enum_of(op, "nan_mode") == "PROPAGATE"
        if name == "clamp":
            (a,) = self._operands(op, 1)
            return reals.real_clamp(a, float_of(op, "min_val"), float_of(op, "max_val"), propagates)
        if name in ("maximum", "minimum"):
            return reals.real(f"real_{name[:3]}", *self._operands(op, 2), numbers=(int(propagates),))
        if name in _COMPARED:
            return reals.real_compare(_COMPARED[name], *self._operands(op, 2))
        if name in ("abs", "ceil", "floor", "negate"):
            return reals.real(f"real_{name}", *self._operands(op, 1))
        if name in ("add", "sub", "mul"):
            return reals.real(f"real_{name}", *self._operands(op, 2))
        raise _NotCoveredError

    def _mul(self, op: ir.Operation, a: Value, b: Value) -> Value:
        shift = constant_value(op.operands[2])
        if shift is None:
            raise _NotCoveredError
        amount = int(shift.item())
        product = multiply_shifted(a, b, amount) if amount else lanes.multiply(a, b)
        if product is None:
            raise _NotCoveredError
        return product

    def _cast(self, op: ir.Operation, a: Value) -> Value:
        source, target = (str(element_type(value)) for value in (op.operands[0], op.results[0]))
        if "i1" in (source, target) or _BITS[target] < _BITS[source]:
            raise _NotCoveredError
        return a

    def _clamp(self, op: ir.Operation, a: Value) -> Value:
        return lanes.clamp(a, int_of(op, "min_val"), int_of(op, "max_val"))

    def _table(self, op: ir.Operation, a: Value) -> Value:
        entries = constant_value(op.operands[1])
        if entries is None:
            raise _NotCoveredError
        return table(a, entries) if entries.dtype == np.int8 else interpolated(a, entries)

    def _rescale(self, op: ir.Operation, a: Value) -> Value:
        flags = {name: bool_of(op, name) for name in ("scale32", "input_unsigned", "output_unsigned")}
        constants = [constant_value(operand) for operand in list(op.operands)[1:]]
        is_bytes = flags.pop("input_unsigned")
        if flags != {"scale32": True, "output_unsigned": False} or (is_bytes and _bits(op.operands[0]) != 8):
            raise _NotCoveredError
        if enum_of(op, "rounding_mode") != "SINGLE_ROUND" or any(c is None for c in constants):
            raise _NotCoveredError
        multiplier, shift, input_zero, output_zero = (c for c in constants if c is not None)
        bits, zero = _bits(op.results[0]), int(output_zero.item())
        less = int(input_zero.item())
        if is_bytes:  # less 128, they are the signed ones but for the first bit
            a, less = lanes.bitwise("xor", a, lanes.number(-128)), less % 256 - 128
        moved = lanes.subtract(a, lanes.number(less))
        scaled = rescale(moved, multiplier, shift, bits)
        if scaled is None:
            raise _NotCoveredError
        return with_zero_point(scaled, zero, bits)


def _spread(op: ir.Operation) -> list[ir.Value]:
    """The operands of an op that are spread over its result."""
    return list(op.operands)[:1] if op.name in ("tosa.rescale", "tosa.table") else list(op.operands)


def _padded(value: ir.Value, rank: int) -> list[int]:
    shape = shape_of(value)
    return [1] * (rank - len(shape)) + list(shape)


def _axes(function: ir.Operation, shape: Sequence[int]) -> list[list[int]]:
    """The axes of a result, in groups of neighbors that every operand varies with, or none of which it does."""
    operands = [operand for op in computing_ops(function) for operand in _spread(op)]
    padded = [_padded(operand, len(shape)) for operand in operands if math.prod(shape_of(operand)) > 1]
    by_channel = any(op.name == "tosa.rescale" and shape_of(op.operands[1]) != (1,) for op in computing_ops(function))
    last = len(shape) - 1

    def kind(axis: int) -> tuple[bool, ...]:
        return (by_channel and axis == last, *(sizes[axis] > 1 for sizes in padded))

    wide = [axis for axis, size in enumerate(shape) if size > 1]
    return [list(axes) for _, axes in itertools.groupby(wide, kind)] or [[]]


_COMPARED = {"equal": "eq", "greater": "gt", "greater_equal": "ge"}
_UNARY: Mapping[str, Callable[[Value], Value]] = {
    "abs": lanes.absolute,
    "bitwise_not": lanes.inverted,
    "clz": lanes.leading_zeros,
    "logical_not": lambda a: lanes.subtract(lanes.number(1), a),
}
_BINARY: Mapping[str, Callable[[Value, Value], Value]] = {
    "add": lanes.add,
    "sub": lanes.subtract,
    "maximum": lanes.maximum,
    "minimum": lanes.minimum,
    **{name: partial(lanes.bitwise, name.rpartition("_")[2]) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: partial(lanes.bitwise, name.rpartition("_")[2]) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: partial(lanes.compare, short) for name, short in _COMPARED.items()},
    "logical_left_shift": partial(lanes.shift_by, left=True, rounding=False, signed=False),
    "logical_right_shift": partial(lanes.shift_by, left=False, rounding=False, signed=False),
}


def _is_real(value: ir.Value) -> bool:
    return str(element_type(value)) == "f32"


def _bits(value: ir.Value) -> int:
    """Bits of an element in memory: a bool is a byte."""
    kind = str(element_type(value))
    if kind not in _BITS:
        raise _NotCoveredError
    return _BITS[kind]


def _range(value: ir.Value) -> tuple[int, int]:
    if str(element_type(value)) == "i1":
        return 0, 1
    bits = _bits(value)
    return -(1 << bits - 1), (1 << bits - 1) - 1
