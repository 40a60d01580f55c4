"""Pointwise functions as programs: each element from those at its place; what a row or channel needs alone, before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tosaic.backends.cortex_m.nest.elementwise import Elementwise
from tosaic.backends.cortex_m.nest.lanes import CHANNEL, FLAT, RELATIONS, ROW, Value
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.rewriting import seq
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Op,
    Program,
    RefusedError,
    Statement,
)
from tosaic.backends.cortex_m.program.tree import Value as Number

_ROWS: Mapping[str, str] = MappingProxyType(
    {
        "mul": "mul",
        "shift": "asr",
        "max": "max",
        "min": "min",
        "shift_saturating": "sat_shl",
        "and": "bit_and",
        "or": "bit_or",
        "xor": "bit_xor",
        "invert": "bit_not",
        "abs": "abs",
        "clz": "clz",
        "select": "select",
    }
)
"""The operation of a value, where both take the same operands; behind them stand the value's numbers."""
_INT32 = (-(1 << 31), (1 << 31) - 1)
_TYPES = {1: "i8", 2: "i16", 4: "i32"}


def pointwise(what: Elementwise, arguments: int) -> tuple[Program, dict[str, np.ndarray]]:
    """The program of a pointwise function, and its constants by name.

    Inputs are `a0`, `a1` ...; loops are `y` over rows and `x` over channels, or `x` over all elements.

    Args:
        arguments: of the function, used or not.

    Raises:
        RefusedError: it has an operation on floats, or one that saturates by a number that is not known.
    """
    return _TreeReader(what, arguments).program()


class _TreeReader:
    def __init__(self, what: Elementwise, arguments: int) -> None:
        self.what, self.arguments = what, arguments
        self.uses = Counter(operand for value in what.values for operand in value.operands)
        self.constants = dict[str, np.ndarray]()
        self.buffers = dict[str, Buffer]()
        self.numbers = dict[Value, Number]()
        self.kept: dict[str, list[tuple[Buffer, Number]]] = {"once": [], ROW: [], CHANNEL: [], FLAT: []}
        self.extents = (what.rows, what.channels) if what.by_rows else (what.rows * what.channels,)
        self.names = ("y", "x") if what.by_rows else ("x",)

    def program(self) -> tuple[Program, dict[str, np.ndarray]]:
        for value in self.what.values:
            self.numbers[value] = self._kept(value, self._number(value))
        result = Assign(Access("out", self._index(FLAT)), self.numbers[self.what.result])
        body = self._around(CHANNEL, self._around(FLAT, result))
        body = For("x", self.extents[-1], body)
        if self.what.by_rows:
            body = For("y", self.extents[0], self._around(ROW, body))
        body = self._around("once", body)
        inputs = [self.buffers.pop(f"a{i}", Buffer(f"a{i}", "i8", (1,), "in")) for i in range(self.arguments)]
        out = Buffer("out", _TYPES[self.what.size], self.extents, "out")
        return Program((*inputs, out, *self.buffers.values()), body), self.constants

    def _around(self, level: str, body: Statement) -> Statement:
        """A statement with what is computed at a level before it."""
        for buffer, number in reversed(self.kept[level]):
            body = Alloc(buffer, seq(Assign(Access(buffer.name), number), body))
        return body

    def _index(self, level: str) -> tuple[Affine, ...]:
        """The index of a buffer that varies with an axis."""
        names = {FLAT: self.names, ROW: ("y",), CHANNEL: ("x",), "once": ()}[level]
        return tuple(map(Affine.of, names))

    def _shape(self, level: str) -> tuple[int, ...]:
        return {FLAT: self.extents, ROW: self.extents[:1], CHANNEL: self.extents[-1:], "once": ()}[level]

    def _kept(self, value: Value, number: Number) -> Number:
        """A number in a register, where it is used again or further inside."""
        if not isinstance(number, Op):
            return number
        inside = any(user.level != value.level for user in self.what.values if value in user.operands)
        if self.uses[value] < 2 and not (inside and value.level in ("once", ROW)):
            return number
        buffer = Buffer(f"v{sum(map(len, self.kept.values()))}", "i32", (), "r")
        self.kept[value.level].append((buffer, number))
        return Access(buffer.name)

    def _number(self, value: Value) -> Number:
        if value.number is not None:
            return value.number
        operands = [self.numbers[operand] for operand in value.operands]
        if value.op in _ROWS:
            return Op(_ROWS[value.op], (*operands, *value.numbers))
        read = getattr(self, f"_{value.op}", None)
        if read is None:
            raise RefusedError(f"no operation of a program is `{value.op}`")
        number: Number = read(value, operands)
        return number

    def _input(self, value: Value, operands: list[Number]) -> Number:
        index, size = value.numbers
        level = _level(value)
        self.buffers[f"a{index}"] = Buffer(f"a{index}", _TYPES[size], self._shape(level), "in")
        return Access(f"a{index}", self._index(level))

    def _array(self, value: Value, operands: list[Number]) -> Number:
        assert value.data is not None
        return Access(self._constant(value.data, self._shape(_level(value))), self._index(_level(value)))

    def _constant(self, data: np.ndarray, shape: tuple[int, ...]) -> str:
        name, size = f"c{len(self.constants)}", 1 if data.dtype == np.int8 else 2 if _is_half(data) else 4
        self.constants[name] = data.reshape(shape)
        self.buffers[name] = Buffer(name, _TYPES[size], shape, "const")
        return name

    def _sum(self, value: Value, operands: list[Number]) -> Number:
        *factors, constant = value.numbers
        terms = [o if f == 1 else Op("mul", (o, f)) for o, f in zip(operands, factors, strict=True) if f != -1]
        less = [o for o, f in zip(operands, factors, strict=True) if f == -1]
        found: Number = terms[0] if terms else constant
        for term in terms[1:]:
            found = Op("add", (found, term))
        for term in less:
            found = Op("sub", (found, term))
        return Op("add", (found, constant)) if terms and constant else found

    def _shift_round(self, value: Value, operands: list[Number]) -> Number:
        (a,), (amount,) = value.operands, value.numbers
        half = 1 << (amount - 1)
        if a.high + half <= _INT32[1]:
            return Op("asr", (Op("add", (operands[0], half)), amount))
        return Op("round_asr", (operands[0], amount))

    def _narrow(self, value: Value, operands: list[Number]) -> Number:
        (a,), (bits,) = value.operands, value.numbers
        return operands[0] if a.bits <= bits else Op(f"sat{bits}", tuple(operands))

    def _high_half(self, value: Value, operands: list[Number]) -> Number:
        """VQDMULH, or VQRDMULH: with room for a bit, the high word of twice the factor."""
        (a, _), (rounding,) = value.operands, value.numbers
        if not rounding and 2 * a.low >= _INT32[0] and 2 * a.high <= _INT32[1]:
            return Op("high", (Op("mul", (operands[0], 2)), operands[1]))
        return Op("round_doubled_high" if rounding else "doubled_high", tuple(operands))

    def _shift_by(self, value: Value, operands: list[Number]) -> Number:
        unsigned, rounding, saturating = value.numbers
        if saturating or (unsigned and rounding):
            raise RefusedError("no operation of a program saturates by a number that is not known")
        return Op("logical_shift" if unsigned else "round_shift" if rounding else "shift", tuple(operands))

    def _table(self, value: Value, operands: list[Number]) -> Number:
        assert value.data is not None
        return Op("lookup", (Access(self._constant(value.data, (256,)), (Affine.of(128),)), operands[0]))

    def _lookup(self, value: Value, operands: list[Number]) -> Number:
        assert value.data is not None
        (first,) = value.numbers
        name = self._constant(value.data, (value.data.size,))
        return Op("lookup", (Access(name, (Affine.of(first),)), operands[0]))

    def _compare(self, value: Value, operands: list[Number]) -> Number:
        return Op(RELATIONS[value.numbers[0]], tuple(operands))


def _level(value: Value) -> str:
    """The axis that a given value varies with."""
    return next(iter(value.varies), "once")


def _is_half(data: np.ndarray) -> bool:
    return bool(data.min() >= -(1 << 15) and data.max() < 1 << 15)
