"""Pointwise functions as values: exact integers with known ranges, simplified as they are built.

A value is one integer for each position of a tensor. Its range says how many bits of a lane it needs, the axes that it
varies with say how often it is computed. Nothing wraps: where an op of TOSA has no meaning beyond its type, the range
ends there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

CHANNEL = 0
"""The last axis."""
INT32 = (-(1 << 31), (1 << 31) - 1)
DENSE_MULTIPLIER = 1 << 30
RELATIONS = ("eq", "gt", "ge")
"""What comparisons ask, by the number that they hold."""


@dataclass(frozen=True, eq=False)
class Value:
    """One integer for each position.

    Args:
        op: how it is computed, as a reader in `pointwise` says; `number`, `array` and `input` are given.
        operands: the values that it is computed from.
        low, high: its range.
        varies: the axes that it varies with, counted from the last, which is 0.
        numbers: of `sum`, the factor of each operand, and what is added; of shifts the amount; of `narrow` the bits; of
            `input` its index and bytes.
        data: of `array` and tables.
        zeros: low bits that are always 0.
    """

    op: str
    operands: tuple[Value, ...]
    low: int
    high: int
    varies: frozenset[int]
    numbers: tuple[int, ...] = ()
    data: np.ndarray | None = None
    zeros: int = 0

    @property
    def bits(self) -> int:
        """Bits that hold it with its sign: 8, 16 or 32."""
        return next(bits for bits in (8, 16, 32) if -(1 << bits - 1) <= self.low and self.high < 1 << bits - 1)

    @property
    def number(self) -> int | None:
        """Its value, where there is but one."""
        return self.low if self.low == self.high else None


def number(value: int) -> Value:
    """The same integer everywhere."""
    return Value("number", (), value, value, frozenset(), zeros=trailing_zeros(value))


def given(index: int, size: int, low: int, high: int, varies: Iterable[int]) -> Value:
    """An input: the argument `index` of the function, elements of `size` bytes."""
    return Value("input", (), low, high, frozenset(varies), (index, size))


def array(data: np.ndarray, varies: Iterable[int]) -> Value:
    """A constant: one element for each position."""
    low, high = int(data.min()), int(data.max())
    return number(low) if low == high else Value("array", (), low, high, frozenset(varies), data=data.reshape(-1))


def add(a: Value, b: Value) -> Value:
    """a + b"""
    return _sum([*_terms(a), *_terms(b)])


def subtract(a: Value, b: Value) -> Value:
    """a - b"""
    return _sum([*_terms(a), *((value, -factor) for value, factor in _terms(b))])


def multiply(a: Value, b: Value) -> Value:
    """a * b"""
    for value, other in ((a, b), (b, a)):
        if (factor := value.number) is not None:
            return _sum([(term, factor * of) for term, of in _terms(other)])
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return folded(computed("mul", (a, b), min(ends), max(ends), zeros=a.zeros + b.zeros), lambda x, y: x * y)


def shift_right(a: Value, amount: int, rounding: bool) -> Value:
    """a >> amount, half rounded up or all rounded down."""
    half = 1 << amount - 1 if rounding and amount else 0
    exact = min(amount, a.zeros)
    if exact and a.op == "sum":
        *factors, constant = a.numbers
        if not any(factor % (1 << exact) for factor in (*factors, constant)):
            terms = [(v, factor >> exact) for v, factor in zip(a.operands, factors, strict=True)]
            return shift_right(_sum([*terms, (number(1), constant >> exact)]), amount - exact, rounding)
    if not amount:
        return a
    if exact == amount and a.op == "narrow":
        return narrow(shift_right(a.operands[0], amount, rounding), a.numbers[0])
    low, high = a.low + half >> amount, a.high + half >> amount
    op = "shift_round" if rounding else "shift"
    return folded(computed(op, (a,), low, high, (amount,)), lambda x: x + half >> amount)


def narrow(a: Value, bits: int) -> Value:
    """a, saturated to a signed integer of so many bits."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if bits == 32 or (a.bits <= bits and a.op in ("input", "array", "number", "narrow")):
        return a
    ends = min(max(a.low, low), high), min(max(a.high, low), high)
    zeros = a.zeros if a.low >= low and a.high <= high else 0
    return folded(computed("narrow", (a,), *ends, (bits,), zeros=zeros), lambda x: np.clip(x, low, high))


def clamp(a: Value, low: int, high: int) -> Value:
    """min(max(a, low), high)"""
    a = maximum(a, number(low)) if a.low < low else a
    return minimum(a, number(high)) if a.high > high else a


def maximum(a: Value, b: Value) -> Value:
    """The larger of a and b."""
    return folded(computed("max", (a, b), max(a.low, b.low), max(a.high, b.high)), np.maximum)


def minimum(a: Value, b: Value) -> Value:
    """The smaller of a and b."""
    return folded(computed("min", (a, b), min(a.low, b.low), min(a.high, b.high)), np.minimum)


def shift_by(a: Value, amount: Value, left: bool, rounding: bool, signed: bool) -> Value:
    """a shifted left or right by a value, in 32 bits."""
    amount = amount if left else subtract(number(0), amount)
    kept = signed and not left
    low, high = (min(a.low, 0), max(a.high, 0)) if kept else INT32
    return computed("shift_by", (a, amount), low, high, (int(not signed), int(rounding), 0))


def bitwise(op: str, a: Value, b: Value) -> Value:
    """`and`, `or` or `xor` of a and b."""
    bits = max(a.bits, b.bits)
    both = a.low >= 0 and b.low >= 0
    low, high = (0, (1 << max(a.high.bit_length(), b.high.bit_length())) - 1) if both else _range(bits)
    return computed(op, (a, b), low, high)


def inverted(a: Value) -> Value:
    """Every bit of a the other way."""
    return computed("invert", (a,), ~a.high, ~a.low)


def absolute(a: Value) -> Value:
    """The absolute value; of the least integer of 32 bits, itself."""
    if a.low == INT32[0]:
        return computed("abs", (a,), *INT32)
    return computed("abs", (a,), 0, max(-a.low, a.high))


def leading_zeros(a: Value) -> Value:
    """The number of zeros above the first one, of 32 bits."""
    return computed("clz", (a,), 0, 32)


def compare(op: str, a: Value, b: Value) -> Value:
    """1 where a is `gt`, `ge` or `eq` b, else 0."""
    return computed("compare", (a, b), 0, 1, (RELATIONS.index(op),))


def select(condition: Value, a: Value, b: Value) -> Value:
    """a where the condition is not 0, else b."""
    return computed("select", (condition, a, b), min(a.low, b.low), max(a.high, b.high))


def reachable(result: Value) -> list[Value]:
    """Every value behind `result` and itself, operands first."""
    found: dict[Value, None] = {}
    stack = [(result, False)]
    while stack:
        value, done = stack.pop()
        if done:
            found[value] = None
        elif value not in found:
            stack += [(value, True), *((operand, False) for operand in reversed(value.operands))]
    return list(found)


def computed(
    op: str,
    operands: tuple[Value, ...],
    low: int,
    high: int,
    numbers: tuple[int, ...] = (),
    data: np.ndarray | None = None,
    zeros: int = 0,
) -> Value:
    """What an op computes; its range ends where int32 does."""
    varies = frozenset(itertools.chain.from_iterable(operand.varies for operand in operands))
    return Value(op, operands, max(low, INT32[0]), min(high, INT32[1]), varies, numbers, data, zeros)


def folded(value: Value, compute: Callable[..., np.ndarray]) -> Value:
    """The constant that a value is where its operands are constants."""
    arrays = {operand.varies for operand in value.operands if operand.op == "array"}
    if len(arrays) > 1 or any(operand.op not in ("number", "array") for operand in value.operands):
        return value
    data = [np.int64(v.low) if v.data is None else v.data.astype(np.int64) for v in value.operands]
    result = compute(*data)
    return array(np.asarray(result), value.varies) if np.ndim(result) else number(int(result))


def _terms(a: Value) -> list[tuple[Value, int]]:
    """The value as a sum: what stands once in a product with a number is a term."""
    if a.number is not None:
        return [(number(1), a.low)]
    if a.op == "sum" and len(a.operands) == 1:
        return [(a.operands[0], a.numbers[0]), (number(1), a.numbers[1])]
    return [(a, 1)]


def _sum(terms: Sequence[tuple[Value, int]]) -> Value:
    """The sum of values times factors. What varies with fewer axes is added up by itself."""
    factors: dict[Value, int] = {}
    constant = 0
    for value, factor in terms:
        if value.number is not None:
            constant += value.low * factor
        elif value.op == "array":
            scaled = folded(computed("mul", (value, number(factor)), *INT32), lambda x, y: x * y)
            factors[scaled] = factors.get(scaled, 0) + 1
        else:
            factors[value] = factors.get(value, 0) + factor
    factors = {value: factor for value, factor in factors.items() if factor}
    terms, every = list(factors.items()), frozenset[int]().union(*(value.varies for value in factors))
    groups = dict[frozenset[int], list[Value]]()
    for value in factors:
        groups.setdefault(value.varies if CHANNEL in value.varies else every - {CHANNEL}, []).append(value)
    for axes in sorted(groups.keys() - {every}, key=lambda axes: (CHANNEL in axes, len(axes))):
        inner = _plain_sum([(v, factors[v]) for v in groups[axes]], constant)
        terms = [(inner, 1), *((v, f) for v, f in terms if v not in groups[axes])]
        constant = 0
    return _plain_sum(terms, constant)


def _plain_sum(terms: list[tuple[Value, int]], constant: int) -> Value:
    if not terms:
        return number(constant)
    if len(terms) == 1 and terms[0][1] == 1:
        (only, _), *_ = terms
        if not constant:
            return only
        if only.op == "sum":
            *inner, moved = only.numbers
            return _plain_sum(list(zip(only.operands, inner, strict=True)), moved + constant)
    ends = [(min(v.low * f, v.high * f), max(v.low * f, v.high * f)) for v, f in terms]
    low, high = sum(low for low, _ in ends) + constant, sum(high for _, high in ends) + constant
    zeros = min([v.zeros + trailing_zeros(f) for v, f in terms] + [trailing_zeros(constant)])
    values, factors = tuple(v for v, _ in terms), tuple(f for _, f in terms)
    result = computed("sum", values, low, high, (*factors, constant), zeros=zeros)
    if low < INT32[0] or high > INT32[1]:
        result = replace(result, low=INT32[0], high=INT32[1])

    def total(*operands: np.ndarray) -> np.ndarray:
        return reduce(np.add, (v * f for v, f in zip(operands, factors, strict=True)), np.asarray(constant))

    return folded(result, total)


def fits_int32(a: Value, factor: int) -> bool:
    return INT32[0] <= a.low * factor and a.high * factor <= INT32[1]


def _range(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1


def trailing_zeros(value: int) -> int:
    """Low bits of an integer that are 0; 32 of 0 itself."""
    return (value & -value).bit_length() - 1 if value else 32
