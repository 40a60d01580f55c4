"""Pointwise functions as programs: each element from those at its place; what a row or channel needs alone, before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tosaic.backends.cortex_m.kernel import WORTH_SHARING
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.memory import SHARED
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
from tosaic.backends.cortex_m.program.values import CHANNEL, FLAT, RELATIONS, ROW, Value, reachable

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
TYPES = {1: "i8", 2: "i16", 4: "i32"}


@dataclass(frozen=True, eq=False)
class Elementwise:
    """What is computed: `result` for each channel of each row, elements of `size` bytes."""

    result: Value
    rows: int
    channels: int
    size: int

    @cached_property
    def values(self) -> list[Value]:
        """All values, operands first."""
        return reachable(self.result)

    @cached_property
    def by_rows(self) -> bool:
        """Whether elements are counted in rows, not through all of them."""
        return any(value.level in (ROW, CHANNEL) for value in self.values)

    @property
    def narrowest(self) -> int:
        """Bits of the narrowest lanes that hold every element in memory."""
        inputs = [v for v in self.values if v.op == "input" and v.level in (CHANNEL, FLAT)]
        full = [v.bits for v in self.values if v.op == "array" and v.level == FLAT]
        return max([8 * self.size, *(8 * v.numbers[1] for v in inputs), *full])

    def staged(self, level: str) -> list[Value]:
        """What is computed for each position of `level`, and used beyond it."""
        wanted = {
            operand
            for value in self.values
            for operand in value.operands
            if value.level != operand.level == level and is_computed(operand)
        }
        wanted |= {self.result} if self.result.level == level and is_computed(self.result) else set()
        return [value for value in self.values if value in wanted]


def is_computed(value: Value) -> bool:
    """Whether a value is neither given nor a number."""
    return value.op not in ("input", "array") and value.number is None


def pointwise(what: Elementwise, arguments: int) -> tuple[Program, dict[str, np.ndarray]]:
    """The program of a pointwise function, and its constants by name.

    Inputs are `a0`, `a1` ...; loops are `y` over rows and `x` over channels, or `x` over all elements.

    Args:
        arguments: of the function, used or not.

    Raises:
        RefusedError: it has an operation on floats, or one that saturates by a number that is not known.
    """
    return _ScalarReader(what, arguments).program()


class PointwiseReader(ABC):
    """What all programs of a function have in common: the operations that its values are, its inputs and constants."""

    def __init__(self, what: Elementwise, arguments: int) -> None:
        self.what, self.arguments = what, arguments
        self.constants, self.data = dict[str, np.ndarray](), dict[str, np.ndarray]()
        self.buffers = dict[str, Buffer]()

    @abstractmethod
    def _index(self, level: str) -> tuple[Affine, ...]:
        """The index of a buffer that varies with an axis."""

    @abstractmethod
    def _shape(self, level: str) -> tuple[int, ...]:
        """The shape of such a buffer."""

    def _inputs(self) -> list[Buffer]:
        """All inputs, in their order."""
        return [self.buffers.pop(f"a{i}", Buffer(f"a{i}", "i8", (1,), "in")) for i in range(self.arguments)]

    def _computed(self, value: Value, operands: list[Number]) -> Number:
        """The operation that a value is."""
        if value.op in _ROWS:
            return Op(_ROWS[value.op], (*operands, *value.numbers))
        read = getattr(self, f"_{value.op}", None)
        if read is None:
            raise RefusedError(f"no operation of a program is `{value.op}`")
        number: Number = read(value, operands)
        return number

    def _input(self, value: Value, operands: list[Number]) -> Number:
        index, size = value.numbers
        level = level_of(value)
        self.buffers[f"a{index}"] = Buffer(f"a{index}", TYPES[size], self._shape(level), "in")
        return Access(f"a{index}", self._index(level))

    def _array(self, value: Value, operands: list[Number]) -> Number:
        assert value.data is not None
        return Access(self._constant(value.data, self._shape(level_of(value))), self._index(level_of(value)))

    def _constant(self, data: np.ndarray, shape: tuple[int, ...]) -> str:
        """The name of a constant; data that are the same object are one. A large one other kernels may have, too."""
        known = next((name for name, kept in self.data.items() if kept is data), None)
        if known is not None:
            return known
        size = 1 if data.dtype == np.int8 else 2 if _is_half(data) else 4
        large = data.size * size > WORTH_SHARING and SHARED not in self.data
        name = SHARED if large else f"c{len(self.constants)}"
        self.data[name], self.constants[name] = data, data.reshape(shape)
        self.buffers[name] = Buffer(name, TYPES[size], shape, "const")
        return name

    def _narrow(self, value: Value, operands: list[Number]) -> Number:
        (a,), (bits,) = value.operands, value.numbers
        return operands[0] if a.bits <= bits else Op(f"sat{bits}", tuple(operands))

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


class _ScalarReader(PointwiseReader):
    def __init__(self, what: Elementwise, arguments: int) -> None:
        super().__init__(what, arguments)
        self.uses = Counter(operand for value in what.values for operand in value.operands)
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
        inputs = self._inputs()
        out = Buffer("out", TYPES[self.what.size], self.extents, "out")
        return Program((*inputs, out, *self.buffers.values()), body), self.constants

    def _number(self, value: Value) -> Number:
        if value.number is not None:
            return value.number
        return self._computed(value, [self.numbers[operand] for operand in value.operands])

    def _around(self, level: str, body: Statement) -> Statement:
        """A statement with what is computed at a level before it."""
        for buffer, number in reversed(self.kept[level]):
            body = Alloc(buffer, seq(Assign(Access(buffer.name), number), body))
        return body

    def _index(self, level: str) -> tuple[Affine, ...]:
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


def level_of(value: Value) -> str:
    """The axis that a given value varies with."""
    return next(iter(value.varies), "once")


def _is_half(data: np.ndarray) -> bool:
    return bool(data.min() >= -(1 << 15) and data.max() < 1 << 15)
