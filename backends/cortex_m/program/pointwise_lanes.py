"""Pointwise functions for vectors: each operation is a number of the narrowest type that holds it.

What some axes need alone, rows or channels, is computed first. Numbers lie in constants, so that kernels which differ
in numbers only are one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.counted_lookups import counted
from tosaic.backends.cortex_m.program.ops import LOW
from tosaic.backends.cortex_m.program.pointwise import (
    TYPES,
    Elementwise,
    PointwiseReader,
    is_computed,
    level_kind,
    level_loops,
    loop_over,
    outermost_first,
)
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.real_values import READS_REALS, REAL, reals
from tosaic.backends.cortex_m.program.rewriting import nested, seq, with_accesses
from tosaic.backends.cortex_m.program.touches import tables_of, touches
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, Op, Statement
from tosaic.backends.cortex_m.program.tree import Value as Number
from tosaic.backends.cortex_m.program.values import CHANNEL, RELATIONS, Value

NUMBERS, FLOATS, FURTHER = "k", "kf", "m"
"""The constants that hold numbers: those that registers hold, floats, and all others."""
_NARROW = ("max", "min", "and", "or", "xor", "select", "compare", "mul")
"""The operations that are done in lanes of the widest operand."""
_REGISTERS, _FEWEST, _FOR_FURTHER = 11, 2, 3
"""General registers for pointers and numbers, those for numbers at least, and those that numbers in memory take."""


def pointwise_lanes(what: Elementwise, arguments: int, *, staged: bool) -> tuple[Program, dict[str, np.ndarray]]:
    """The program of a pointwise function, and its constants by name.

    Inputs are `a0`, `a1` ...; loops are `x` over channels, `y`, `y2` ... over the axes before. What is computed first
    has loops of its own: the last of them is `r` without channels, `c` with them, each with a number.

    Args:
        arguments: of the function, used or not.
        staged: whether what a channel needs alone is computed first, else for each element.
    """
    return _LaneReader(counted(what), arguments, staged).program()


class _LaneReader(PointwiseReader):
    def __init__(self, what: Elementwise, arguments: int, staged: bool) -> None:
        super().__init__(what, arguments)
        self.own = [level for level in what.levels if staged or CHANNEL not in level]
        self.at = what.every
        self.real = reals(what.values)
        self.loops = level_loops(self.own)
        self.same = dict[Value, Value]()
        self.names = {value: f"v{number}" for number, value in enumerate(filter(is_computed, what.values))}
        self.staged = dict[Value, str]()
        for kind in ("R", "C"):
            values = [value for level in self.own if level_kind(level) == kind for value in what.staged(level)]
            self.staged |= {value: f"{kind}{number}" for number, value in enumerate(values)}
        self.lasting = list[Access]()
        self.numbers, self.floats, self.further = list[int](), list[int](), list[int]()

    def program(self) -> tuple[Program, dict[str, np.ndarray]]:
        dtype = "f32" if self.what.result in self.real else TYPES[self.what.size]
        out = Buffer("out", dtype, self.what.extents, "out")
        self.at = frozenset()
        body = self._level(self.at, lambda: [self._loops()], "r")
        arguments = (*self._inputs(), out, *self._constants(body))
        return Program(arguments, nested(with_accesses(body, self._kept), b=1)), self.constants

    def _loops(self) -> Statement:
        """All that is computed for rows, channels and elements."""
        loops = [self._loop(level) for level in self.own]
        every = self.at = self.what.every
        result = self._level(
            every, lambda: [Assign(Access("out", self._index(every)), self._operand(self.what.result))]
        )
        body = seq(*(loop for loop in loops if loop is not None), self._nested(result))
        for value, name in self.staged.items():
            dtype = "i32" if name[0] == "R" and value not in self.real else self._dtype(value)
            body = Alloc(Buffer(name, dtype, self._shape(value.varies), "scratch"), body)
        return body

    def _nested(self, body: Statement) -> Statement:
        """The loops of a level around what it computes."""
        return nested(body, **{self._var(axis): self.what.extents[-1 - axis] for axis in outermost_first(self.at)})

    def _var(self, axis: int) -> str:
        """The loop over an axis at the level that is written."""
        if self.at == self.what.every:
            return loop_over(axis)
        vectors = self.loops[self.at]
        return vectors if axis == min(self.at) else f"{vectors}{loop_over(axis)}"

    def _few(self, body: Statement) -> Statement:
        """What a level computes, with the numbers in `FURTHER` that no registers are left for."""
        read = [a for _, a in touches(body) if a.buffer not in self.names.values()]
        tables, numbers = tables_of(body), dict.fromkeys(a for a in read if a.buffer == NUMBERS)
        moving = {a.buffer for a in read if any(i.terms for i in a.index) or a.buffer in tables}
        others = {a for a in read if a.buffer not in tables and not any(i.terms for i in a.index)}
        twice = [name for name in tables if self.buffers[name].dtype == "i16"]
        free = _REGISTERS - len(moving) - len(twice) - len(others - numbers.keys())
        if len(numbers) <= free:
            return body
        beyond = list(numbers)[max(_FEWEST, free - _FOR_FURTHER) :]

        def changed(a: Access) -> Access:
            if a not in beyond:
                return a
            value = self.numbers[a.index[0].const]
            if value not in self.further:
                self.further.append(value)
            return Access(FURTHER, (Affine.of(self.further.index(value)),))

        return with_accesses(body, changed)

    def _kept(self, a: Access) -> Access:
        """A number where it lies at last."""
        return Access(NUMBERS, (Affine.of(self.lasting.index(a)),)) if a in self.lasting else a

    def _loop(self, level: frozenset[int]) -> Statement | None:
        """The loops over some axes that compute what these need alone; None where that is nothing."""
        staged = [value for value in self.staged if value.varies == level]
        if not staged:
            return None
        self.at = level

        def stored() -> list[Statement]:
            return [Assign(Access(self.staged[v], self._index(level)), self._operand(v)) for v in staged]

        return self._nested(self._level(level, stored))

    def _level(self, level: frozenset[int], then: Callable[[], list[Statement]], memory: str = "scratch") -> Statement:
        """What is computed at a level, one number after the other, and what comes `then`."""
        made, buffers = list[Statement](), list[Buffer]()
        for value in self.what.values:
            if self._level_of(value) == level and is_computed(value):
                number = self._computed(value, self._operands(value))
                if isinstance(number, Op):
                    dtype = self._dtype(value)
                    buffers.append(
                        Buffer(self.names[value], dtype if memory == "scratch" else self._word(value), (), memory)
                    )
                    made.append(Assign(Access(self.names[value]), number))
                else:
                    self.same[value] = value.operands[0]
        body = seq(*made, *then())
        body = self._few(body) if level else body
        for buffer in reversed(buffers):
            body = Alloc(buffer, body)
        return body

    def _level_of(self, value: Value) -> frozenset[int]:
        """The level at which a value is computed."""
        return value.varies if value.varies in self.own or not value.varies else self.what.every

    def _dtype(self, value: Value) -> str:
        return "f32" if value in self.real else f"i{value.bits}"

    def _word(self, value: Value) -> str:
        return "f32" if value in self.real else "i32"

    # Operands.

    def _operands(self, value: Value) -> list[Number]:
        reals = value.op in READS_REALS or (value.op == "select" and value in self.real)
        found = list[Number]()
        for number, operand in enumerate(value.operands):
            real = reals and (value.op != "select" or number > 0)
            term = self._operand(operand, real)
            low = LOW.get(operand.bits)
            narrow = value.op in _NARROW and not real and low and self._is_scalar(operand)
            found.append(Op(low, (term,)) if narrow and low else term)
        return found

    def _operand(self, value: Value, real: bool = False) -> Number:
        """A value as it is read at the level that is written."""
        if value in self.staged and self._level_of(value) != self.at:
            return Access(self.staged[value], self._index(value.varies))
        if value in self.same:
            return self._operand(self.same[value], real)
        if value.number is not None:
            return self._literal(value.number, real or value in self.real)
        if not is_computed(value):
            return self._computed(value, [])
        return Access(self.names[value])

    def _is_scalar(self, value: Value) -> bool:
        """Whether it is the same in all lanes."""
        return not self.at or min(self.at) not in value.varies

    def _literal(self, value: int, real: bool = False) -> Number:
        """A number that the params hold."""
        known, name = (self.floats, FLOATS) if real else (self.numbers, NUMBERS)
        wrapped = (value + (1 << 31)) % (1 << 32) - (1 << 31)
        if wrapped not in known:
            known.append(wrapped)
        return Access(name, (Affine.of(known.index(wrapped)),))

    def _constants(self, body: Statement) -> list[Buffer]:
        self.lasting = list(dict.fromkeys(a for _, a in touches(body) if a.buffer == NUMBERS))
        self.numbers = [self.numbers[a.index[0].const] for a in self.lasting]
        found = list(self.buffers.values())
        for name, dtype, values in (
            (NUMBERS, "i32", self.numbers),
            (FURTHER, "i32", self.further),
            (FLOATS, "f32", self.floats),
        ):
            if values:
                data = np.array(values, np.int32)
                self.constants[name] = data.view(np.float32) if dtype == "f32" else data
                found.append(Buffer(name, dtype, (len(values),), "const"))
        return found

    def _index(self, level: frozenset[int]) -> tuple[Affine, ...]:
        return tuple(Affine.of(self._var(axis)) for axis in outermost_first(level))

    # Operations.

    def _computed(self, value: Value, operands: list[Number]) -> Number:
        if value.op in REAL:
            return Op(REAL[value.op], tuple(operands))
        return super()._computed(value, operands)

    def _input(self, value: Value, operands: list[Number]) -> Number:
        found = super()._input(value, operands)
        assert isinstance(found, Access)
        if value in self.real:
            self.buffers[found.buffer] = Buffer(found.buffer, "f32", self.buffers[found.buffer].shape, "in")
        return found

    def _array(self, value: Value, operands: list[Number]) -> Number:
        found = super()._array(value, operands)
        assert isinstance(found, Access) and value.data is not None
        if value in self.real:
            shape = self.buffers[found.buffer].shape
            self.buffers[found.buffer] = Buffer(found.buffer, "f32", shape, "const")
            self.constants[found.buffer] = value.data.astype(np.int32).view(np.float32).reshape(shape)
        else:
            self.buffers[found.buffer] = Buffer(found.buffer, f"i{value.bits}", self._shape(value.varies), "const")
        return found

    def _sum(self, value: Value, operands: list[Number]) -> Number:
        *factors, constant = value.numbers
        terms = sorted(zip(operands, factors, value.operands, strict=True), key=lambda t: (t[1] == -1, t[1] != 1))
        (first, factor, operand), *others = terms
        added = constant or any(self._is_scalar(other) for _, _, other in others)
        power = factor > 1 and factor.bit_count() == 1 and (not added or value.bits == 2 * operand.bits)
        found = first if factor == 1 else Op("mul", (first, factor)) if power else self._times(first, factor)
        for term, factor, _ in others:
            found = Op("sub" if factor == -1 else "add", (found, term if factor == -1 else self._times(term, factor)))
        return Op("add", (found, self._literal(constant))) if constant else found

    def _times(self, term: Number, factor: int) -> Number:
        """A term of a sum with its factor."""
        if factor == 1:
            return term
        return Op("sub", (0, term)) if factor == -1 else Op("mul", (term, self._literal(factor)))

    def _shift_round(self, value: Value, operands: list[Number]) -> Number:
        return Op("round_asr", (*operands, *value.numbers))

    def _high_half(self, value: Value, operands: list[Number]) -> Number:
        return Op("round_doubled_high" if value.numbers[0] else "doubled_high", tuple(operands))

    def _shift_by(self, value: Value, operands: list[Number]) -> Number:
        unsigned, rounding, saturating = value.numbers
        name = "sat_shl" if saturating else "logical_shift" if unsigned else "round_shift" if rounding else "shift"
        return Op(name, tuple(operands))

    def _real_max(self, value: Value, operands: list[Number]) -> Number:
        return self._extremum(value, operands, ("at_least", "max_nan", "max_number"))

    def _real_min(self, value: Value, operands: list[Number]) -> Number:
        return self._extremum(value, operands, ("at_most", "min_nan", "min_number"))

    def _extremum(self, value: Value, operands: list[Number], names: tuple[str, str, str]) -> Number:
        bound, both, number = names
        if not value.numbers[0]:
            return Op(number, tuple(operands))
        return Op(bound if value.operands[1].number is not None else both, tuple(operands))

    def _real_compare(self, value: Value, operands: list[Number]) -> Number:
        return Op(RELATIONS[value.numbers[0]], tuple(operands))

    def _from_real(self, value: Value, operands: list[Number]) -> Number:
        return Op("nearest", tuple(operands))
