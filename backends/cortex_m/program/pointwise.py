"""Pointwise functions as programs: each element from those at its place; what some axes need alone, before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tosaic.backends.cortex_m.kernel import WORTH_SHARING
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.memory import SHARED
from tosaic.backends.cortex_m.program.tree import Access, Buffer, Op, RefusedError
from tosaic.backends.cortex_m.program.tree import Value as Number
from tosaic.backends.cortex_m.program.values import (
    CHANNEL,
    RELATIONS,
    Value,
    add,
    array,
    clamp,
    compare,
    reachable,
    subtract,
)

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
INT32 = (-(1 << 31), (1 << 31) - 1)
TYPES = {1: "i8", 2: "i16", 4: "i32"}
_WIDEST_ROW, _NARROWEST_ROW = 64, 16
"""Elements of a row of channels that a constant counts."""


@dataclass(frozen=True, eq=False)
class Elementwise:
    """What is computed: `result` at each position of axes of these `extents`, the last of which are the channels;
    elements of `size` bytes."""

    result: Value
    extents: tuple[int, ...]
    size: int

    @cached_property
    def values(self) -> list[Value]:
        """All values, operands first."""
        return reachable(self.result)

    @property
    def every(self) -> frozenset[int]:
        """All axes, counted from the last."""
        return frozenset(range(len(self.extents)))

    @cached_property
    def levels(self) -> list[frozenset[int]]:
        """The axes, not all, that values vary with: those without channels first, each behind those in it."""
        found = {value.varies for value in self.values} - {frozenset(), self.every}
        return sorted(found, key=lambda axes: (CHANNEL in axes, len(axes), sorted(axes)))

    @property
    def narrowest(self) -> int:
        """Bits of the narrowest lanes that hold every element in memory."""
        inputs = [v for v in self.values if v.op == "input" and CHANNEL in v.varies]
        full = [v.bits for v in self.values if v.op == "array" and v.varies == self.every]
        return max([8 * self.size, *(8 * v.numbers[1] for v in inputs), *full])

    def staged(self, level: frozenset[int]) -> list[Value]:
        """What is computed for each position of the axes in `level`, and used beyond it."""
        wanted = {
            operand
            for value in self.values
            for operand in value.operands
            if value.varies != operand.varies == level and is_computed(operand)
        }
        wanted |= {self.result} if self.result.varies == level and is_computed(self.result) else set()
        return [value for value in self.values if value in wanted]


def in_rows(what: Elementwise) -> Elementwise:
    """The function whose channels are rows of some, where a large constant counts them.

    Each element of the constant is then the sum of that of its row and that of its place in the row, which take a few
    bytes.
    """
    width = next((n for n in range(_WIDEST_ROW, _NARROWEST_ROW - 1, -1) if what.extents[-1] % n == 0), 0)
    counted = {value for value in what.values if width and _counts(value, what.extents[-1])}
    if not counted:
        return what
    new, parts = dict[Value, Value](), dict[Value, tuple[Value, Value]]()
    for value in what.values:
        if value in counted and value.data is not None:
            places = array(value.data[:width] - value.data[0], [CHANNEL])
            parts[value] = places, array(value.data[::width], [CHANNEL + 1])
            new[value] = add(*parts[value])
            continue
        operands = tuple(new[operand] for operand in value.operands)
        varies = {axis + 1 for axis in value.varies} | {CHANNEL} & value.varies
        new[value] = replace(value, operands=operands, varies=frozenset(varies))
        if value.op == "compare":
            new[value] = _compared(new[value], [parts.get(operand) for operand in value.operands])
    return Elementwise(new[what.result], (*what.extents[:-1], what.extents[-1] // width, width), what.size)


def _compared(value: Value, parts: Sequence[tuple[Value, Value] | None]) -> Value:
    """A comparison of what is alike in a row with places and a number of the row: with the places alone, which are few
    and narrow. What is beyond all of them is as well one beyond the last."""
    operands = list(value.operands)
    for known, (number, side) in zip(parts, ((1, 0), (0, 1)), strict=True):
        other, counted = operands[number], operands[side]
        if known is None or CHANNEL in other.varies:
            continue
        places, rows = known
        within = clamp(other, counted.low - 1, counted.high + 1)
        operands[number] = clamp(subtract(within, rows), places.low - 1, places.high + 1)
        operands[side] = places
        return compare(RELATIONS[value.numbers[0]], *operands)
    return value


def _counts(value: Value, channels: int) -> bool:
    """Whether a value is a large constant of equal steps from channel to channel."""
    if value.op != "array" or value.data is None or value.data.size != channels or value.varies != {CHANNEL}:
        return False
    return channels > WORTH_SHARING and len(np.unique(np.diff(value.data))) == 1


def is_computed(value: Value) -> bool:
    """Whether a value is neither given nor a number."""
    return value.op not in ("input", "array") and value.number is None


class PointwiseReader(ABC):
    """What all programs of a function have in common: the operations that its values are, its inputs and constants."""

    def __init__(self, what: Elementwise, arguments: int) -> None:
        self.what, self.arguments = what, arguments
        self.constants, self.data = dict[str, np.ndarray](), dict[str, np.ndarray]()
        self.buffers = dict[str, Buffer]()

    @abstractmethod
    def _index(self, level: frozenset[int]) -> tuple[Affine, ...]:
        """The index of a buffer that varies with some axes."""

    def _shape(self, level: frozenset[int]) -> tuple[int, ...]:
        """The shape of such a buffer."""
        return tuple(self.what.extents[-1 - axis] for axis in outermost_first(level))

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
        self.buffers[f"a{index}"] = Buffer(f"a{index}", TYPES[size], self._shape(value.varies), "in")
        return Access(f"a{index}", self._index(value.varies))

    def _array(self, value: Value, operands: list[Number]) -> Number:
        assert value.data is not None
        return Access(self._constant(value.data, self._shape(value.varies)), self._index(value.varies))

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


def loop_over(axis: int) -> str:
    """The name of the loop over an axis."""
    return ("x", "y")[axis] if axis < 2 else f"y{axis}"


def outermost_first(level: frozenset[int]) -> list[int]:
    """Axes in the order of a buffer's."""
    return sorted(level, reverse=True)


def _is_half(data: np.ndarray) -> bool:
    return bool(data.min() >= -(1 << 15) and data.max() < 1 << 15)


def level_kind(level: frozenset[int]) -> str:
    """Whether a level has channels, as the first letter of its numbers."""
    return "C" if CHANNEL in level else "R"


def level_loops(levels: Sequence[frozenset[int]]) -> dict[frozenset[int], str]:
    """The name of the last loop of each level."""
    found = dict[frozenset[int], str]()
    for kind in ("R", "C"):
        for number, level in enumerate(level for level in levels if level_kind(level) == kind):
            found[level] = f"{kind.lower()}{number or ''}"
    return found
