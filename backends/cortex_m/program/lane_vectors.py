"""Statements on registers of vectors: one loop over lanes for each instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.ops import LOW
from tosaic.backends.cortex_m.program.program import Program, allocated
from tosaic.backends.cortex_m.program.rewriting import seq
from tosaic.backends.cortex_m.program.touches import own_buffers
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Op,
    Reduce,
    RefusedError,
    Statement,
    Value,
)

Made: TypeAlias = "For | Assign"
VECTOR = 8 * REGISTERS["q"]
"""Bits of a vector."""
_MOST_SPREAD = 4
"""Vectors of one number each that stay in registers."""


class SpreadNumbers:
    """Vectors of one number each, which are filled in an iteration of a loop before anything else; and new constants.

    Args:
        loop: the loop.
    """

    def __init__(self, program: Program, loop: For) -> None:
        inside, self.var = own_buffers(loop.body), loop.var
        self.buffers = program.buffers
        self.known = {b.name for b in allocated(loop.body) if b.memory == "q"}
        self.outside = {b.name for b in program.buffers.values() if b.memory == "r" and b.name not in inside}
        self.room = _MOST_SPREAD - len([name for name in self.known if "_all" in name])
        self.made = dict[str, tuple[Buffer, Value]]()
        self.constants, self.derived = list[Buffer](), list[Derive]()

    def vector(self, number: Access, bits: int) -> Buffer | None:
        """The vector of a number from outside; None where there is no room for one more."""
        kind = "f32" if self._dtype(number) == "f32" else f"i{bits}"
        name = f"{number.buffer}{'_'.join(map(str, number.index))}_all{kind}"
        if name in self.buffers and name not in self.known:
            name = f"{name}_{self.var}"  # another loop has its own
        buffer = Buffer(name, kind, (VECTOR // bits,), "q")
        if name not in self.known | self.made.keys():
            if not self.room or number.buffer not in self.outside:
                return None
            self.room -= 1
            self.made[name] = (buffer, number)
        return buffer

    def _dtype(self, number: Access) -> str:
        return self.buffers[number.buffer].dtype if number.buffer in self.buffers else ""

    def rolled(self, table: str) -> Buffer:
        """A table of bytes in the order of these without a sign."""
        name, b = f"{table}_rolled", self.buffers[table]
        found = Buffer(name, b.dtype, b.shape, "const")
        if name not in self.buffers and found not in self.constants:
            self.constants.append(found)
            self.derived.append(Derive(name, "rolled", (table,), (b.shape,)))
        return found

    def before(self, loop: For, body: Statement) -> For:
        """The loop with a body, behind what fills vectors."""
        for buffer, number in reversed(self.made.values()):
            var = f"{buffer.name}_l"
            fill = For(var, buffer.size, Assign(Access(buffer.name, (Affine.of(var),)), number))
            body = Alloc(buffer, seq(fill, body))
        return For(loop.var, loop.extent, body, loop.step, loop.early, loop.kind, loop.ahead)


class LaneVectors:
    """The registers of one vector of iterations of a loop, and the statements on them.

    Args:
        prefix: begins the names of registers.
    """

    def __init__(self, buffers: dict[str, Buffer], spread: SpreadNumbers, prefix: str) -> None:
        self.buffers, self.spread, self.prefix = buffers, spread, prefix
        self.made, self.registers = list[Made](), Counter[str]()

    @property
    def allocated(self) -> list[Buffer]:
        """The registers of the statements."""
        return [self.buffers[name] for name in self.registers]

    def width(self, vector: Access) -> int:
        """Bits of the elements of a vector."""
        return 8 * BYTES[self.buffers[vector.buffer].dtype]

    def new(
        self,
        bits: int,
        value: Value,
        *,
        real: bool = False,
        lanes: int = 0,
        apart: int = 1,
        every: int = 1,
        first: int = 0,
    ) -> Access:
        """A new vector: its elements, `apart` in it, are a value of elements of others: the `first`, and `every` so
        many behind it.

        Args:
            lanes: how many; 0 for all.
        """
        target = self._register("f32" if real else f"i{bits}")
        self._assign(target, lanes or VECTOR // bits, Affine.of(0), apart, value, every, first)
        return target

    def changed(self, target: Access, value: Value, *, adds: bool = False) -> None:
        """A vector becomes a value, or has it added."""
        self._assign(target, VECTOR // self.width(target), Affine.of(0), 1, value, adds=adds)

    def packed(self, bits: int, halves: Sequence[tuple[Value, int]]) -> Access:
        """The even and the odd elements of a vector, each with the distance of what they are made of."""
        target = self._register(f"i{bits}")
        for number, (value, every) in enumerate(halves):
            self._assign(target, VECTOR // bits // 2, Affine.of(number), 2, value, every)
        return target

    def _assign(
        self,
        target: Access,
        lanes: int,
        start: Affine,
        apart: int,
        value: Value,
        every: int = 1,
        first: int = 0,
        adds: bool = False,
    ) -> None:
        lane = self.lane()
        place = Access(target.buffer, (*target.index[:-1], lane * apart + start))
        self.loop(lanes, lane, place, self.elements(value, lane * every + first), adds=adds)

    def lane(self) -> Affine:
        """The variable of the next loop."""
        return Affine.of(f"{self.prefix}l{len(self.made)}")

    def loop(self, lanes: int, lane: Affine, target: Access, value: Value, *, adds: bool = False) -> None:
        """The next loop: of each lane an element becomes a value, or has it added."""
        ((var, _),) = lane.terms
        self.made.append(For(var, lanes, (Reduce if adds else Assign)(target, value)))

    def elements(self, value: Value, place: Affine) -> Value:
        """A value of vectors as one of their elements."""
        if isinstance(value, Op):
            return Op(value.name, tuple(self.elements(arg, place) for arg in value.args))
        if isinstance(value, Access) and self.buffers[value.buffer].memory == "q":
            return Access(value.buffer, (*value.index[:-1], place))
        return value

    def _register(self, dtype: str) -> Access:
        """The next vector of a type."""
        name = f"{self.prefix}q{dtype}"
        number = self.registers[name]
        self.registers[name] += 1
        self.buffers[name] = Buffer(name, dtype, (number + 1, VECTOR // 8 // BYTES[dtype]), "q")
        return Access(name, (Affine.of(number), Affine()))

    # Numbers.

    def number(self, value: Value) -> Access:
        """A number in a general register; one from memory lives up to the next."""
        if isinstance(value, Op) and value.name in LOW.values():
            return self.number(value.args[0])
        if not isinstance(value, Access):
            raise RefusedError(f"{value} is in no register")
        b = self.buffers[value.buffer]
        if b.memory == "r":
            return value
        word = Buffer(f"{self.prefix}r{b.dtype}", "f32" if b.dtype == "f32" else "i32", (), "r")
        self.buffers[word.name] = word
        self.registers[word.name] = 1
        self.made.append(Assign(Access(word.name), value))
        return Access(word.name)

    def low(self, value: Value, bits: int) -> Value:
        """A number as operations of so many bits take it."""
        number = self.number(value)
        return Op(LOW[bits], (number,)) if bits in LOW else number

    def filled(self, value: Value, bits: int) -> Access:
        """A vector of a number."""
        number = self.number(value)
        return self.staying(number, bits) or self.new(bits, number, real=self.buffers[number.buffer].dtype == "f32")

    def rolled(self, table: str) -> Access:
        """A table of bytes in the order of these without a sign."""
        found = self.spread.rolled(table)
        self.buffers[found.name] = found
        return Access(found.name, (Affine(),))

    def staying(self, number: Access, bits: int) -> Access | None:
        """A vector of a number that stays in registers, where there is room for it."""
        found = self.spread.vector(number, bits)
        if found is None:
            return None
        self.buffers[found.name] = found
        return Access(found.name, (Affine(),))
