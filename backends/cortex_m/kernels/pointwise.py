"""Trees of integer pointwise ops as one pass over the data on MVE, four 32-bit lanes at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource, Workload
from tosaic.backends.cortex_m.kernels.emit import (
    ACCUMULATOR,
    LANES,
    Function,
    Requantisation,
    clamp,
    interleave,
    load_lanes,
    memref,
    store_lanes,
)
from tosaic.backends.cortex_m.kernels.linalg import named
from tosaic.backends.target import Core
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, parse, shape_of
from tosaic.tuner.space import Schedule, Variant

_MASK = "vector<4xi1>"
_WIDTHS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32}
_CONSTANTS = ("tosa.const", "tosa.const_shape")
_BINARY = {
    "tosa.add": "arith.addi",
    "tosa.sub": "arith.subi",
    "tosa.maximum": "arith.maxsi",
    "tosa.minimum": "arith.minsi",
    "tosa.bitwise_and": "arith.andi",
    "tosa.bitwise_or": "arith.ori",
    "tosa.bitwise_xor": "arith.xori",
    "tosa.logical_and": "arith.andi",
    "tosa.logical_or": "arith.ori",
    "tosa.logical_xor": "arith.xori",
}
_COMPARE = {"tosa.equal": "eq", "tosa.greater": "sgt", "tosa.greater_equal": "sge"}
_UNARY = ("tosa.clamp", "tosa.abs", "tosa.negate", "tosa.rescale", "tosa.table", "tosa.cast", "tosa.logical_not")
_OPS = (*_BINARY, *_COMPARE, *_UNARY, "tosa.mul", "tosa.select")


class Pointwise:
    """Integer pointwise ops to one result: arithmetic, comparison, selection, RESCALE, CLAMP, TABLE on int8.

    Operands have the result's shape, one element, one element per channel (last axis), or one per row (all axes but
    the last). Knob `unroll` is the number of vectors in flight.
    """

    name = "pointwise"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = [op.operation for op in function.regions[0].blocks[0].operations]
        returned = list(ops[-1].operands)
        body = [op for op in ops[:-1] if op.name not in _CONSTANTS]
        if len(returned) != 1 or not body or any(op.name not in _OPS for op in body):
            return None
        if any(str(element_type(v)) not in _WIDTHS for op in body for v in (*op.operands[:1], *op.results)):
            return None
        try:
            _Kernel(function, 1).write()
        except _NotCoveredError:
            return None
        attributes = {"function": str(function), "elements": math.prod(shape_of(returned[0])), "ops": len(body)}
        names = "+".join(op.name.removeprefix("tosa.") for op in body)
        return Workload(self.name, f"{names} {shape_of(returned[0])}", attributes, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return (Variant("lanes", {"unroll": (4, 2, 1)}),) if core.mve else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        module = parse(str(workload.attributes["function"]))
        (function,) = functions(module).values()
        return _Kernel(function, int(schedule["unroll"])).write()

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        elements, ops = (float(str(workload.attributes[name])) for name in ("elements", "ops"))
        return {"elements": elements, "ops": ops, "unroll": float(schedule["unroll"])}


class _NotCoveredError(Exception):
    """The function holds something that this family does not write."""


@dataclass(frozen=True)
class _Value:
    """A tensor of the function: how its lanes are read, and the range of its elements."""

    load: Callable[[Mapping[ir.Value, str], _Place], str]
    low: int
    high: int


@dataclass(frozen=True)
class _Place:
    """Four neighbouring elements: flat index, row, first channel and block of channels, and how many of them exist."""

    flat: str
    row: str
    channel: str
    block: str
    count: int


class _Kernel:
    """Writes one kernel."""

    def __init__(self, function: ir.Operation, unroll: int) -> None:
        self.block = function.regions[0].blocks[0]
        *self.body, end = [op.operation for op in self.block.operations]
        (self.result,) = end.operands
        self.shape = shape_of(self.result)
        self.channels = self.shape[-1] if self.shape else 1
        self.total = math.prod(self.shape)
        self.unroll = unroll
        self.arguments = list(self.block.arguments)
        kinds = [memref([math.prod(shape_of(v))], _stored(v)) for v in self.arguments]
        self.kinds = kinds
        self.out_kind = memref([self.total], _stored(self.result))
        self.fn = Function("kernel", kinds, [self.out_kind], aliases=True)
        self.by_channel = False
        self.values: dict[ir.Value, _Value] = {}

    def write(self) -> KernelSource:
        for i, argument in enumerate(self.arguments):
            self.values[argument] = self._input(i, argument)
        for op in self.body:
            if op.name == "tosa.const_shape":
                continue
            (result,) = op.results
            if op.name == "tosa.const":
                array = constant_value(result)
                if array is None:
                    raise _NotCoveredError
                if array.size in (1, self.channels, self.total):
                    self.values[result] = self._constant(array, result)
                continue
            self.values[result] = self._compute(op)
        self._loops()
        in_place = tuple(
            (i, 0)
            for i, argument in enumerate(self.arguments)
            if math.prod(shape_of(argument)) == self.total and _width(argument) >= _width(self.result)
        )
        source = KernelSource("kernel", "mlir", str(self.fn), bytes(self.fn.params), in_place=in_place)
        return named(source, "pointwise")

    def _loops(self) -> None:
        fn = self.fn
        if not self.by_channel:
            self._row(fn.constant(0), self.total)
            return
        rows = self.total // self.channels
        with fn.loop(rows) as row:
            self._row(row, self.channels)

    def _row(self, row: str, length: int) -> None:
        """All elements of one row of `length`."""
        fn, step = self.fn, LANES * self.unroll
        base = fn.binary("arith.muli", row, fn.constant(length), "index")
        whole = length // step * step
        if whole:
            with fn.loop(whole, step) as i:
                self._vectors(base, row, i, [LANES] * self.unroll)
        rest = length - whole
        if rest:
            counts = [LANES] * (rest // LANES) + ([rest % LANES] if rest % LANES else [])
            self._vectors(base, row, fn.constant(whole), counts)

    def _vectors(self, base: str, row: str, first: str, counts: Sequence[int]) -> None:
        """Load, compute and store the vectors at `first`; all loads stand before the first store."""
        fn = self.fn
        places = []
        for n, count in enumerate(counts):
            channel = fn.binary("arith.addi", first, fn.constant(LANES * n), "index") if n else first
            flat = fn.binary("arith.addi", base, channel, "index")
            block = fn.op(f"arith.divui {channel}, {fn.constant(LANES)} : index")
            places.append(_Place(flat, row, channel, block, count))
        results = [self._evaluate(place) for place in places]
        for place, value in zip(places, results, strict=True):
            self._store(value, place)

    def _evaluate(self, place: _Place) -> str:
        lanes: dict[ir.Value, str] = {}
        for op in self.body:
            if op.name in _CONSTANTS:
                continue
            for operand in op.operands:
                if operand in self.values and operand not in lanes:
                    lanes[operand] = self.values[operand].load(lanes, place)
            lanes[op.results[0]] = self.values[op.results[0]].load(lanes, place)
        return lanes[self.result]

    def _store(self, value: str, place: _Place) -> None:
        fn, kind = self.fn, _stored(self.result)
        if str(element_type(self.result)) == "i1":
            value = fn.op(f"arith.extui {value} : {_MASK} to vector<4xi8>")
        elif kind != "i32":
            value = fn.op(f"arith.trunci {value} : {ACCUMULATOR} to vector<4x{kind}>")
        store_lanes(fn, value, "%out0", self.out_kind, place.flat, f"vector<4x{kind}>", place.count)

    def _input(self, number: int, argument: ir.Value) -> _Value:
        return self._buffer(f"%in{number}", self.kinds[number], argument)

    def _constant(self, array: np.ndarray, value: ir.Value) -> _Value:
        if array.dtype == np.bool_:
            array = array.astype(np.int8)
        low, high = int(array.min()), int(array.max())
        if array.size == 1 and str(element_type(value)) != "i1":
            splat = self.fn.constant(low, ACCUMULATOR)
            return _Value(lambda _, __: splat, low, high)
        flat = array.reshape(-1)
        padded = np.pad(flat, (0, -flat.size % LANES))
        table = self.fn.table(padded, _stored(value))
        found = self._buffer(table, memref([padded.size], _stored(value)), value)
        return _Value(found.load, low, high)

    def _buffer(self, name: str, kind: str, value: ir.Value) -> _Value:
        """A tensor in memory, by how its shape is broadcast."""
        shape = shape_of(value)
        size, stored = math.prod(shape), _stored(value)
        low, high = _range(value)
        fn = self.fn
        padded = [1] * (len(self.shape) - len(shape)) + list(shape)
        if size == 1:
            index = "zero"
        elif padded == list(self.shape):
            index = "flat"
        elif padded[-1] == self.channels and size == self.channels:
            index, self.by_channel = "channel", True
        elif padded[:-1] == list(self.shape[:-1]) and padded[-1] == 1:
            index, self.by_channel = "row", True
        else:
            raise _NotCoveredError

        def load(_: Mapping[ir.Value, str], place: _Place) -> str:
            if index in ("zero", "row"):
                at = place.row if index == "row" else fn.constant(0)
                scalar = fn.op(f"memref.load {name}[{at}] : {kind}")
                return self._widen(fn.op(f"vector.broadcast {scalar} : {stored} to vector<4x{stored}>"), value)
            at = place.flat if index == "flat" else place.channel
            return self._widen(load_lanes(fn, name, kind, at, f"vector<4x{stored}>", place.count), value)

        return _Value(load, low, high)

    def _widen(self, lanes: str, value: ir.Value) -> str:
        stored = _stored(value)
        if str(element_type(value)) == "i1":
            return self.fn.op(f"arith.cmpi ne, {lanes}, {self.fn.constant(0, 'vector<4xi8>')} : vector<4xi8>")
        return lanes if stored == "i32" else self.fn.op(f"arith.extsi {lanes} : vector<4x{stored}> to {ACCUMULATOR}")

    def _compute(self, op: ir.Operation) -> _Value:
        """How the lanes of an op's result follow from those of its operands."""
        fn, (result,) = self.fn, op.results
        low, high = _range(result)
        kind = _MASK if str(element_type(op.operands[0])) == "i1" else ACCUMULATOR
        if op.name in _BINARY:
            a, b = self._operands(op)
            if op.name in ("tosa.add", "tosa.sub"):
                signs = (b.low, b.high) if op.name == "tosa.add" else (-b.high, -b.low)
                low, high = max(low, a.low + signs[0]), min(high, a.high + signs[1])
            return _Value(self._binary(op, _BINARY[op.name], kind), low, high)
        if op.name in _COMPARE:
            return _Value(self._binary(op, f"arith.cmpi {_COMPARE[op.name]},", ACCUMULATOR), 0, 1)
        if op.name == "tosa.mul":
            shift = constant_value(op.operands[2])
            if shift is None or int(shift.item()):
                raise _NotCoveredError
            a, b = self._operands(op, 2)
            products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
            return _Value(self._binary(op, "arith.muli", kind), max(low, min(products)), min(high, max(products)))
        if op.name == "tosa.clamp":
            bounds = [ir.IntegerAttr(op.attributes[name]).value for name in ("min_val", "max_val")]
            return _Value(self._unary(op, lambda x: clamp(fn, x, *bounds)), bounds[0], bounds[1])
        if op.name == "tosa.rescale":
            return self._rescale(op)
        if op.name == "tosa.table":
            return self._table(op)
        if op.name == "tosa.abs":
            zero = fn.constant(0, ACCUMULATOR)
            return _Value(
                self._unary(op, lambda x: fn.binary("arith.maxsi", x, fn.binary("arith.subi", zero, x, kind), kind)),
                0,
                high,
            )
        if op.name == "tosa.select":
            self._operands(op)
            return _Value(lambda v, _: fn.op(self._select(v, op, result)), low, high)
        if op.name == "tosa.logical_not":
            ones = fn.constant("true", _MASK)
            return _Value(self._unary(op, lambda x: fn.binary("arith.xori", x, ones, _MASK)), 0, 1)
        if op.name == "tosa.cast":
            return self._cast(op)
        raise _NotCoveredError

    def _operands(self, op: ir.Operation, count: int | None = None) -> list[_Value]:
        operands = list(op.operands)[:count]
        if any(operand not in self.values for operand in operands):
            raise _NotCoveredError
        return [self.values[operand] for operand in operands]

    def _binary(self, op: ir.Operation, opcode: str, kind: str) -> Callable[[Mapping[ir.Value, str], _Place], str]:
        a, b = op.operands[0], op.operands[1]
        return lambda v, _: self.fn.binary(opcode, v[a], v[b], kind)

    def _unary(self, op: ir.Operation, write: Callable[[str], str]) -> Callable[[Mapping[ir.Value, str], _Place], str]:
        operand = op.operands[0]
        return lambda v, _: write(v[operand])

    def _select(self, lanes: Mapping[ir.Value, str], op: ir.Operation, result: ir.Value) -> str:
        condition, a, b = (lanes[operand] for operand in op.operands)
        kind = _MASK if str(element_type(result)) == "i1" else ACCUMULATOR
        return f"arith.select {condition}, {a}, {b} : {_MASK}, {kind}"

    def _cast(self, op: ir.Operation) -> _Value:
        source, target = (str(element_type(value)) for value in (op.operands[0], op.results[0]))
        (operand,) = self._operands(op)
        if "i1" in (source, target) or _WIDTHS[target] < _WIDTHS[source]:
            raise _NotCoveredError
        return _Value(self._unary(op, lambda x: x), operand.low, operand.high)

    def _table(self, op: ir.Operation) -> _Value:
        values = constant_value(op.operands[1])
        if values is None or values.dtype != np.int8:
            raise _NotCoveredError
        fn = self.fn
        table = fn.table(values, "i8")
        first, origin = fn.constant(128, ACCUMULATOR), fn.constant(0)

        def look_up(x: str) -> str:
            index = fn.binary("arith.addi", x, first, ACCUMULATOR)
            every, nothing = fn.constant("true", _MASK), fn.constant(0, "vector<4xi8>")
            found = fn.op(
                f"vector.gather {table}[{origin}] [{index}], {every}, {nothing} : {memref([256], 'i8')}, "
                f"{ACCUMULATOR}, {_MASK}, vector<4xi8> into vector<4xi8>"
            )
            return fn.op(f"arith.extsi {found} : vector<4xi8> to {ACCUMULATOR}")

        return _Value(self._unary(op, look_up), int(values.min()), int(values.max()))

    def _rescale(self, op: ir.Operation) -> _Value:
        flags = {
            name: ir.BoolAttr(op.attributes[name]).value for name in ("scale32", "input_unsigned", "output_unsigned")
        }
        constants = [constant_value(operand) for operand in list(op.operands)[1:]]
        if flags != {"scale32": True, "input_unsigned": False, "output_unsigned": False}:
            raise _NotCoveredError
        if "SINGLE_ROUND" not in str(op.attributes["rounding_mode"]) or any(c is None for c in constants):
            raise _NotCoveredError
        multiplier, shift, input_zero, output_zero = (c for c in constants if c is not None)
        value = self.values[op.operands[0]]
        zero = int(input_zero.item())
        reach = max(value.high - zero, -(value.low - zero) - 1)
        low, high = _range(op.results[0])
        scale = Requantisation(
            multiplier, shift, zero, int(output_zero.item()), low, high, max(reach, 0).bit_length() + 1
        )
        if not scale.vectorises or multiplier.size not in (1, self.channels):
            raise _NotCoveredError
        ends = [_rescaled(x - zero, multiplier, shift) + int(output_zero.item()) for x in (value.low, value.high)]
        return self._requantise(op, scale, max(low, int(ends[0].min())), min(high, int(ends[1].max())))

    def _requantise(self, op: ir.Operation, scale: Requantisation, low: int, high: int) -> _Value:
        operand, table, kind = op.operands[0], "", ""
        if scale.per_channel:
            self.by_channel = True
            rows = interleave(scale.rows())
            table, kind = self.fn.table(rows, "i32"), memref(rows.shape, "i32")

        def apply(lanes: Mapping[ir.Value, str], place: _Place) -> str:
            return scale.apply(self.fn, lanes[operand], scale.factors(self.fn, table, kind, place.block))

        return _Value(apply, low, high)


def _rescaled(value: int, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """apply_scale_32 of one value with every channel's scale, unbounded."""
    pairs = zip(multiplier.tolist(), shift.tolist(), strict=True)
    return np.array([(value * m + (1 << (s - 1))) >> s for m, s in pairs], object)


def _stored(value: ir.Value) -> str:
    """The element type in memory: a bool is a byte."""
    kind = str(element_type(value))
    if kind not in _WIDTHS:
        raise _NotCoveredError
    return "i8" if kind == "i1" else kind


def _width(value: ir.Value) -> int:
    return _WIDTHS[str(element_type(value))]


def _range(value: ir.Value) -> tuple[int, int]:
    dtype = numpy_dtype(element_type(value))
    if dtype == np.bool_:
        return 0, 1
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
