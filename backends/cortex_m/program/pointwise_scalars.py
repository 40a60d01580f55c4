"""Pointwise functions as programs of scalar statements."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.pointwise import (
    INT32,
    TYPES,
    Elementwise,
    PointwiseReader,
    loop_over,
    outermost_first,
)
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import seq
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, For, Op, RefusedError, Statement
from tosaic.backends.cortex_m.program.tree import Value as Number
from tosaic.backends.cortex_m.program.values import CHANNEL, Value


def pointwise(what: Elementwise, arguments: int) -> tuple[Program, dict[str, np.ndarray]]:
    """The program of a pointwise function, and its constants by name.

    Inputs are `a0`, `a1` ...; loops are `x` over channels, `y` over the axis before, `y2` over that before it ...

    Args:
        arguments: of the function, used or not.

    Raises:
        RefusedError: it has an operation on floats, or one that saturates by a number that is not known.
    """
    return _ScalarReader(what, arguments).program()


class _ScalarReader(PointwiseReader):
    def __init__(self, what: Elementwise, arguments: int) -> None:
        super().__init__(what, arguments)
        self.uses = Counter(operand for value in what.values for operand in value.operands)
        self.numbers = dict[Value, Number]()
        self.kept: dict[frozenset[int], list[tuple[Buffer, Number]]] = {}

    def program(self) -> tuple[Program, dict[str, np.ndarray]]:
        for value in self.what.values:
            self.numbers[value] = self._kept(value, self._number(value))
        levels = [frozenset(), *self.what.levels, self.what.every]
        body: Statement = Assign(Access("out", self._index(self.what.every)), self.numbers[self.what.result])
        for axis, extent in enumerate(reversed(self.what.extents)):
            for level in reversed([level for level in levels if level and min(level) == axis]):
                body = self._around(level, body)
            body = For(loop_over(axis), extent, body)
        body = self._around(frozenset(), body)
        inputs = self._inputs()
        out = Buffer("out", TYPES[self.what.size], self.what.extents, "out")
        return Program((*inputs, out, *self.buffers.values()), body), self.constants

    def _number(self, value: Value) -> Number:
        if value.number is not None:
            return value.number
        return self._computed(value, [self.numbers[operand] for operand in value.operands])

    def _around(self, level: frozenset[int], body: Statement) -> Statement:
        """A statement with what is computed at a level before it."""
        for buffer, number in reversed(self.kept.get(level, [])):
            body = Alloc(buffer, seq(Assign(Access(buffer.name), number), body))
        return body

    def _index(self, level: frozenset[int]) -> tuple[Affine, ...]:
        return tuple(Affine.of(loop_over(axis)) for axis in outermost_first(level))

    def _kept(self, value: Value, number: Number) -> Number:
        """A number in a register, where it is used again or further inside."""
        if not isinstance(number, Op):
            return number
        inside = any(user.varies != value.varies for user in self.what.values if value in user.operands)
        if self.uses[value] < 2 and not (inside and CHANNEL not in value.varies):
            return number
        buffer = Buffer(f"v{sum(map(len, self.kept.values()))}", "i32", (), "r")
        self.kept.setdefault(value.varies, []).append((buffer, number))
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
        if a.high + half <= INT32[1]:
            return Op("asr", (Op("add", (operands[0], half)), amount))
        return Op("round_asr", (operands[0], amount))

    def _high_half(self, value: Value, operands: list[Number]) -> Number:
        """VQDMULH, or VQRDMULH: with room for a bit, the high word of twice the factor."""
        (a, _), (rounding,) = value.operands, value.numbers
        if not rounding and 2 * a.low >= INT32[0] and 2 * a.high <= INT32[1]:
            return Op("high", (Op("mul", (operands[0], 2)), operands[1]))
        return Op("round_doubled_high" if rounding else "doubled_high", tuple(operands))

    def _shift_by(self, value: Value, operands: list[Number]) -> Number:
        unsigned, rounding, saturating = value.numbers
        if saturating or (unsigned and rounding):
            raise RefusedError("no operation of a program saturates by a number that is not known")
        return Op("logical_shift" if unsigned else "round_shift" if rounding else "shift", tuple(operands))
