"""Trees of integer pointwise ops as one pass over the data on MVE, in four 32-bit lanes or sixteen bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.emit import (
    ACCUMULATOR,
    LANES,
    Function,
    Requantization,
    clamp,
    gather,
    interleave,
    load_lanes,
    memref,
    rounding_shift,
    store_lanes,
)
from tosaic.backends.cortex_m.kernels.linalg import named
from tosaic.backends.target import Core
from tosaic.support.attributes import bool_of, enum_of, int_of
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, parse, shape_of
from tosaic.support.tosa_ops import POINTWISE, REAL
from tosaic.tuner.space import Schedule, Variant

_MASK = "vector<4xi1>"
_BYTES = 16
# With more ops, four vectors in flight spill MVE's eight registers.
_OPS_IN_REGISTERS = 3
_WIDTHS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32}
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
    "tosa.logical_left_shift": "arith.shli",
    "tosa.logical_right_shift": "arith.shrui",
    "tosa.arithmetic_right_shift": "arith.shrsi",
}
_I32_ONLY = ("tosa.logical_left_shift", "tosa.logical_right_shift", "tosa.clz")
_COMPARE = {"tosa.equal": "eq", "tosa.greater": "sgt", "tosa.greater_equal": "sge"}
_OPS = POINTWISE - REAL - {"tosa.identity", "tosa.intdiv", "tosa.negate"}
_BYTE_OPS = (
    "tosa.table",
    "tosa.clamp",
    "tosa.maximum",
    "tosa.minimum",
    "tosa.bitwise_and",
    "tosa.bitwise_or",
    "tosa.bitwise_xor",
    "tosa.bitwise_not",
)


@FAMILIES.register
class Pointwise(KernelFamily):
    """Integer pointwise ops to one result: arithmetic, shifts, comparison, selection, RESCALE, CLAMP, TABLE.

    Operands have the result's shape, one element, one element per channel (last axis), or one per row (all axes but
    the last). What depends on the channel or the row alone is computed once for each. Variant `bytes` is for int8
    throughout. Knob `unroll` is the number of vectors in flight.
    """

    name = "pointwise"

    def match(self, function: ir.Operation) -> Workload | None:
        results, body = returned(function), computing_ops(function)
        if len(results) != 1 or not body or any(op.name not in _OPS for op in body):
            return None
        if any(str(element_type(v)) not in _WIDTHS for op in body for v in (*op.operands[:1], *op.results)):
            return None
        try:
            _Kernel(function, 1, LANES).write()
        except _NotCoveredError:
            return None
        narrow = all(op.name in _BYTE_OPS and _narrow(op) for op in body)
        shape = shape_of(results[0])
        attributes = {
            "function": str(function),
            "elements": math.prod(shape),
            "channels": shape[-1] if shape else 1,
            "ops": len(body),
            "bytes": narrow,
        }
        names = "+".join(op.name.removeprefix("tosa.") for op in body)
        return Workload(self.name, f"{names} {shape}", attributes, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        ops, channels = (int(str(workload.attributes[name])) for name in ("ops", "channels"))
        # Four vectors that are a whole row save the loop over it.
        crowded = ops > _OPS_IN_REGISTERS and channels > 4 * LANES
        lanes = Variant("lanes", {"unroll": (2, 4, 1) if crowded else (4, 2, 1)})
        return (Variant("bytes", {"unroll": (2, 4, 1)}), lanes) if workload.attributes["bytes"] else (lanes,)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        module = parse(str(workload.attributes["function"]))
        (function,) = functions(module).values()
        return _Kernel(function, int(schedule["unroll"]), _lanes(schedule)).write()

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        elements, ops = (float(str(workload.attributes[name])) for name in ("elements", "ops"))
        lanes = float(_lanes(schedule))
        return {"elements": elements, "ops": ops, "unroll": float(schedule["unroll"]), "lanes": lanes}


def _lanes(schedule: Schedule) -> int:
    return _BYTES if schedule.variant == "bytes" else LANES


def _narrow(op: ir.Operation) -> bool:
    """Whether all data of an op is int8."""
    return all(str(element_type(value)) == "i8" for value in (*op.operands, *op.results))


class _NotCoveredError(Exception):
    """The function holds something that this family does not write."""


@dataclass(frozen=True)
class _Place:
    """Neighboring elements: flat index, row, first channel and block of channels, and how many of them exist.

    A place of a row, a channel or the whole function has only what its level has.
    """

    flat: str = ""
    row: str = ""
    channel: str = ""
    block: str = ""
    count: int = LANES


_Lanes = dict[ir.Value, str]
_Write = Callable[[_Lanes, _Place], str]
_NOTHING: frozenset[str] = frozenset()
_ROW, _CHANNEL, _FLAT = frozenset({"row"}), frozenset({"channel"}), frozenset({"flat"})


@dataclass(frozen=True)
class _Value:
    """A tensor of the function: how its lanes are written, the range of its elements, and what they vary with."""

    write: _Write
    low: int
    high: int
    varies: frozenset[str]


class _Kernel:
    """Writes one kernel.

    Args:
        function: the function of pointwise ops.
        unroll: vectors in flight.
        lanes: of a vector; 16 where all data is int8.
    """

    def __init__(self, function: ir.Operation, unroll: int, lanes: int) -> None:
        block = body_of(function)
        self.constants = [op.operation for op in block.operations if op.operation.name == "tosa.const"]
        self.body = computing_ops(function)
        (self.result,) = returned(function)
        self.shape = shape_of(self.result)
        self.channels = self.shape[-1] if self.shape else 1
        self.total = math.prod(self.shape)
        self.unroll, self.lanes = unroll, lanes
        self.vector = ACCUMULATOR if lanes == LANES else f"vector<{lanes}xi8>"
        self.arguments = list(block.arguments)
        self.kinds = [memref([math.prod(shape_of(v))], _stored(v)) for v in self.arguments]
        self.out_kind = memref([self.total], _stored(self.result))
        self.fn = Function("kernel", self.kinds, [self.out_kind], aliases=True)
        self.values: dict[ir.Value, _Value] = {}

    def write(self) -> KernelSource:
        for i, argument in enumerate(self.arguments):
            self.values[argument] = self._buffer(f"%in{i}", self.kinds[i], argument)
        for op in self.constants:
            (result,) = op.results
            array = constant_value(result)
            if array is None:
                raise _NotCoveredError
            if array.size in (1, self.channels, self.total):
                self.values[result] = self._constant(array, result)
        for op in self.body:
            (result,) = op.results
            value = self._compute(op)
            varies = frozenset[str]().union(*(self.values[v].varies for v in op.operands if v in self.values))
            self.values[result] = replace(value, varies=varies | value.varies)
        self._loops()
        in_place = tuple(
            (i, 0)
            for i, argument in enumerate(self.arguments)
            if math.prod(shape_of(argument)) == self.total and _width(argument) >= _width(self.result)
        )
        source = KernelSource(
            "kernel", "mlir", str(self.fn), bytes(self.fn.params), self.fn.scratch_bytes, in_place=in_place
        )
        return named(source, "pointwise")

    def _loops(self) -> None:
        fn = self.fn
        used = {operand for op in self.body for operand in op.operands}
        varies = _NOTHING.union(*(self.values[v].varies for v in used if v in self.values))
        lanes = self._evaluate({}, _Place(), _NOTHING)
        if varies <= _FLAT:
            self._row(lanes, fn.constant(0), self.total)
            return
        rows = self.total // self.channels
        stored = self._store_channels(lanes) if rows > 1 else {}
        with fn.loop(rows) as row:
            self._row(self._evaluate(lanes, _Place(row=row), _ROW), row, self.channels, stored)

    def _store_channels(self, known: _Lanes) -> dict[ir.Value, str]:
        """Compute what varies with the channel alone into the scratch memory; the buffer of each such value."""
        fn = self.fn
        wanted = {
            operand
            for op in self.body
            if self.values[op.results[0]].varies != _CHANNEL
            for operand in op.operands
            if self._is_computed(operand) and self.values[operand].varies == _CHANNEL
        }
        ordered = [op.results[0] for op in self.body if op.results[0] in wanted]
        if not ordered:
            return {}
        size = -(-self.channels // LANES) * LANES
        fn.scratch_bytes = 4 * size * len(ordered)
        buffers = {value: fn.buffer(4 * size * i, [size], "i32") for i, value in enumerate(ordered)}

        def store(channel: str, count: int) -> None:
            lanes = self._evaluate(known, self._place("", "", channel, count), _CHANNEL)
            for value, buffer in buffers.items():
                fn.line(f"vector.store {lanes[value]}, {buffer}[{channel}] : {memref([size], 'i32')}, {ACCUMULATOR}")

        whole = self.channels // LANES * LANES
        if whole:
            with fn.loop(whole, LANES) as channel:
                store(channel, LANES)
        if self.channels > whole:
            store(fn.constant(whole), self.channels - whole)
        return buffers

    def _is_computed(self, value: ir.Value) -> bool:
        """Whether an op of the body gives it, as numbers."""
        return any(value == op.results[0] for op in self.body) and str(element_type(value)) != "i1"

    def _row(self, known: _Lanes, row: str, length: int, stored: Mapping[ir.Value, str] | None = None) -> None:
        """All elements of one row of `length`."""
        fn, step = self.fn, self.lanes * self.unroll
        base = fn.binary("arith.muli", row, fn.constant(length), "index")
        whole = length // step * step
        if whole:
            with fn.loop(whole, step) as i:
                self._vectors(known, stored or {}, base, row, i, [self.lanes] * self.unroll)
        rest = length - whole
        if rest:
            counts = [self.lanes] * (rest // self.lanes) + ([rest % self.lanes] if rest % self.lanes else [])
            self._vectors(known, stored or {}, base, row, fn.constant(whole), counts)

    def _vectors(
        self, known: _Lanes, stored: Mapping[ir.Value, str], base: str, row: str, first: str, counts: Sequence[int]
    ) -> None:
        """Load, compute and store the vectors at `first`; all loads stand before the first store."""
        fn = self.fn
        results = []
        for n, count in enumerate(counts):
            channel = fn.binary("arith.addi", first, fn.constant(self.lanes * n), "index") if n else first
            place = self._place(fn.binary("arith.addi", base, channel, "index"), row, channel, count)
            lanes = dict(known)
            for value, buffer in stored.items():
                kind = memref([-(-self.channels // LANES) * LANES], "i32")
                lanes[value] = fn.op(f"vector.load {buffer}[{channel}] : {kind}, {ACCUMULATOR}")
            results.append((place, self._evaluate(lanes, place, _ROW | _CHANNEL | _FLAT)[self.result]))
        for place, result in results:
            self._store(result, place)

    def _place(self, flat: str, row: str, channel: str, count: int) -> _Place:
        block = self.fn.op(f"arith.divui {channel}, {self.fn.constant(LANES)} : index")
        return _Place(flat, row, channel, block, count)

    def _evaluate(self, known: _Lanes, place: _Place, level: frozenset[str]) -> _Lanes:
        """The lanes at `place` of all values that vary with no more than `level`, on top of those known.

        Operands of what is known already, and of nothing else, are not loaded.
        """
        lanes = dict(known)
        for op in self.body:
            (result,) = op.results
            computed = self.values[result].varies <= level and result not in lanes
            for operand in op.operands:
                if operand in lanes or operand not in self.values or result in lanes:
                    continue
                if computed or (self.values[operand].varies <= level and level == _ROW):
                    lanes[operand] = self.values[operand].write(lanes, place)
            if computed:
                lanes[result] = self.values[result].write(lanes, place)
        return lanes

    def _store(self, value: str, place: _Place) -> None:
        fn, kind, vector = self.fn, _stored(self.result), f"vector<{self.lanes}x{_stored(self.result)}>"
        if str(element_type(self.result)) == "i1":
            value = fn.op(f"arith.extui {value} : {_MASK} to {vector}")
        elif vector != self.vector:
            value = fn.op(f"arith.trunci {value} : {self.vector} to {vector}")
        store_lanes(fn, value, "%out0", memref([self.total], kind), place.flat, vector, place.count)

    def _constant(self, array: np.ndarray, value: ir.Value) -> _Value:
        if array.dtype == np.bool_:
            array = array.astype(np.int8)
        low, high = int(array.min()), int(array.max())
        if array.size == 1 and str(element_type(value)) != "i1":
            splat = self.fn.constant(low, self.vector)
            return _Value(lambda _, __: splat, low, high, _NOTHING)
        padded = np.pad(array.reshape(-1), (0, -array.size % self.lanes))
        table = self.fn.table(padded, _stored(value))
        found = self._buffer(table, memref([padded.size], _stored(value)), value)
        return replace(found, low=low, high=high)

    def _buffer(self, name: str, kind: str, value: ir.Value) -> _Value:
        """A tensor in memory, by how its shape is broadcast."""
        shape = shape_of(value)
        size, stored = math.prod(shape), _stored(value)
        fn = self.fn
        padded = [1] * (len(self.shape) - len(shape)) + list(shape)
        if size == 1:
            varies = _NOTHING
        elif padded == list(self.shape):
            varies = _FLAT
        elif padded[-1] == self.channels and size == self.channels:
            varies = _CHANNEL
        elif padded[:-1] == list(self.shape[:-1]) and padded[-1] == 1:
            varies = _ROW
        else:
            raise _NotCoveredError

        def write(_: _Lanes, place: _Place) -> str:
            vector = f"vector<{self.lanes}x{stored}>"
            if varies in (_NOTHING, _ROW):
                at = place.row if varies == _ROW else fn.constant(0)
                scalar = fn.op(f"memref.load {name}[{at}] : {kind}")
                return self._widen(fn.op(f"vector.broadcast {scalar} : {stored} to {vector}"), value)
            at = place.flat if varies == _FLAT else place.channel
            return self._widen(load_lanes(fn, name, kind, at, vector, place.count), value)

        low, high = _range(value)
        return _Value(write, low, high, varies)

    def _widen(self, lanes: str, value: ir.Value) -> str:
        vector = f"vector<{self.lanes}x{_stored(value)}>"
        if str(element_type(value)) == "i1":
            return self.fn.op(f"arith.cmpi ne, {lanes}, {self.fn.constant(0, vector)} : {vector}")
        return lanes if vector == self.vector else self.fn.op(f"arith.extsi {lanes} : {vector} to {self.vector}")

    def _compute(self, op: ir.Operation) -> _Value:
        """How the lanes of an op's result follow from those of its operands."""
        fn, (result,) = self.fn, op.results
        low, high = _range(result)
        kind = _MASK if str(element_type(op.operands[0])) == "i1" else self.vector
        if op.name in _I32_ONLY and str(element_type(result)) != "i32":
            raise _NotCoveredError
        if op.name == "tosa.arithmetic_right_shift":
            return self._right_shift(op)
        if op.name in _BINARY:
            a, b = self._operands(op)
            if op.name in ("tosa.add", "tosa.sub"):
                reach = (b.low, b.high) if op.name == "tosa.add" else (-b.high, -b.low)
                if low <= a.low + reach[0] and a.high + reach[1] <= high:
                    low, high = a.low + reach[0], a.high + reach[1]
            return _Value(self._binary(op, _BINARY[op.name], kind), low, high, _NOTHING)
        if op.name in _COMPARE:
            self._operands(op)
            return _Value(self._binary(op, f"arith.cmpi {_COMPARE[op.name]},", ACCUMULATOR), 0, 1, _NOTHING)
        if op.name == "tosa.mul":
            return self._multiply(op, kind)
        if op.name == "tosa.clamp":
            least, most = int_of(op, "min_val"), int_of(op, "max_val")
            return _Value(self._unary(op, lambda x: clamp(fn, x, least, most, kind)), least, most, _NOTHING)
        if op.name == "tosa.rescale":
            return self._rescale(op)
        if op.name == "tosa.table":
            return self._table(op)
        if op.name == "tosa.abs":
            zero = fn.constant(0, kind)
            write = self._unary(op, lambda x: fn.binary("arith.maxsi", x, fn.binary("arith.subi", zero, x, kind), kind))
            return _Value(write, 0, high, _NOTHING)
        if op.name == "tosa.clz":
            return _Value(self._unary(op, lambda x: fn.op(f"math.ctlz {x} : {kind}")), 0, 32, _NOTHING)
        if op.name == "tosa.select":
            self._operands(op)
            return _Value(lambda v, _: fn.op(self._select(v, op, result)), low, high, _NOTHING)
        if op.name in ("tosa.logical_not", "tosa.bitwise_not"):
            ones = fn.constant("true" if kind == _MASK else -1, kind)
            return _Value(self._unary(op, lambda x: fn.binary("arith.xori", x, ones, kind)), low, high, _NOTHING)
        return self._cast(op)

    def _operands(self, op: ir.Operation, count: int | None = None) -> list[_Value]:
        operands = list(op.operands)[:count]
        if any(operand not in self.values for operand in operands):
            raise _NotCoveredError
        return [self.values[operand] for operand in operands]

    def _binary(self, op: ir.Operation, opcode: str, kind: str) -> _Write:
        a, b = op.operands[0], op.operands[1]
        return lambda v, _: self.fn.binary(opcode, v[a], v[b], kind)

    def _unary(self, op: ir.Operation, write: Callable[[str], str]) -> _Write:
        self._operands(op, 1)
        operand = op.operands[0]
        return lambda v, _: write(v[operand])

    def _multiply(self, op: ir.Operation, kind: str) -> _Value:
        shift = constant_value(op.operands[2])
        if shift is None or int(shift.item()):
            raise _NotCoveredError
        a, b = self._operands(op, 2)
        low, high = _range(op.results[0])
        products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        if low <= min(products) and max(products) <= high:
            low, high = min(products), max(products)
        return _Value(self._binary(op, "arith.muli", kind), low, high, _NOTHING)

    def _right_shift(self, op: ir.Operation) -> _Value:
        fn, zero = self.fn, self.fn.constant(0, ACCUMULATOR)
        value, _ = self._operands(op)
        a, b = op.operands

        def write(lanes: _Lanes, _: _Place) -> str:
            if not bool_of(op, "round"):
                return fn.binary("arith.shrsi", lanes[a], lanes[b], ACCUMULATOR)
            return rounding_shift(fn, lanes[a], fn.binary("arith.subi", zero, lanes[b], ACCUMULATOR))

        return _Value(write, min(value.low, 0), max(value.high, 0), _NOTHING)

    def _select(self, lanes: Mapping[ir.Value, str], op: ir.Operation, result: ir.Value) -> str:
        condition, a, b = (lanes[operand] for operand in op.operands)
        kind = _MASK if str(element_type(result)) == "i1" else ACCUMULATOR
        return f"arith.select {condition}, {a}, {b} : {_MASK}, {kind}"

    def _cast(self, op: ir.Operation) -> _Value:
        source, target = (str(element_type(value)) for value in (op.operands[0], op.results[0]))
        (operand,) = self._operands(op)
        if "i1" in (source, target) or _WIDTHS[target] < _WIDTHS[source]:
            raise _NotCoveredError
        return _Value(self._unary(op, lambda x: x), operand.low, operand.high, _NOTHING)

    def _table(self, op: ir.Operation) -> _Value:
        values = constant_value(op.operands[1])
        if values is None:
            raise _NotCoveredError
        fn, low, high = self.fn, int(values.min()), int(values.max())
        if values.dtype != np.int8:
            return _Value(self._unary(op, self._interpolation(values)), low << 7, high << 7, _NOTHING)
        # Bytes count from 0 as unsigned, so the table begins with entry 0 there.
        first = 128 if self.lanes == LANES else 0
        name = fn.table(values if first else np.roll(values, 128), "i8")
        write = self._unary(op, lambda x: gather(fn, name, 256, "i8", first, x, self.vector))
        return _Value(write, low, high, _NOTHING)

    def _interpolation(self, values: np.ndarray) -> Callable[[str], str]:
        """TABLE on int16 (spec 1.0): nine bits choose a segment, seven interpolate in it."""
        fn, name = self.fn, self.fn.table(values, "i16")
        seven, fraction_bits = fn.constant(7, ACCUMULATOR), fn.constant(127, ACCUMULATOR)

        def look_up(x: str) -> str:
            segment = fn.binary("arith.shrsi", x, seven, ACCUMULATOR)
            fraction = fn.binary("arith.andi", x, fraction_bits, ACCUMULATOR)
            base, following = (gather(fn, name, 513, "i16", at, segment, ACCUMULATOR) for at in (256, 257))
            slope = fn.binary("arith.subi", following, base, ACCUMULATOR)
            rise = fn.binary("arith.muli", slope, fraction, ACCUMULATOR)
            return fn.binary("arith.addi", fn.binary("arith.shli", base, seven, ACCUMULATOR), rise, ACCUMULATOR)

        return look_up

    def _rescale(self, op: ir.Operation) -> _Value:
        flags = {name: bool_of(op, name) for name in ("scale32", "input_unsigned", "output_unsigned")}
        constants = [constant_value(operand) for operand in list(op.operands)[1:]]
        if flags != {"scale32": True, "input_unsigned": False, "output_unsigned": False}:
            raise _NotCoveredError
        if enum_of(op, "rounding_mode") != "SINGLE_ROUND" or any(c is None for c in constants):
            raise _NotCoveredError
        multiplier, shift, input_zero, output_zero = (c for c in constants if c is not None)
        if multiplier.size not in (1, self.channels):
            raise _NotCoveredError
        (value,) = self._operands(op, 1)
        zero, out_zero = int(input_zero.item()), int(output_zero.item())
        low, high = _range(op.results[0])
        ends = [_rescaled(x - zero, multiplier, shift) + out_zero for x in (value.low, value.high)]
        least, most = int(ends[0].min()), int(ends[1].max())
        bounds = (low if least < low else -(2**31), high if most > high else 2**31 - 1)
        scale = Requantization(multiplier, shift, zero, out_zero, *bounds)
        return self._requantize(op, scale, min(max(low, least), high), max(min(high, most), low))

    def _requantize(self, op: ir.Operation, scale: Requantization, low: int, high: int) -> _Value:
        operand, table, kind = op.operands[0], "", ""
        if scale.per_channel:
            rows = interleave(scale.rows())
            table, kind = self.fn.table(rows, "i32"), memref(rows.shape, "i32")

        def write(lanes: _Lanes, place: _Place) -> str:
            return scale.apply(self.fn, lanes[operand], scale.factors(self.fn, table, kind, place.block))

        return _Value(write, low, high, _CHANNEL if scale.per_channel else _NOTHING)


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
