"""How numbers lie in the lanes of vectors.

The lanes of a vector have the width of the narrowest numbers. A wider number takes several vectors, its parts: those
of the even and of the odd lanes of the narrower one. So no lane ever changes its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tosaic.backends.cortex_m.program.ops import LOOKUP, LOW
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import accesses
from tosaic.backends.cortex_m.program.touches import own_buffers
from tosaic.backends.cortex_m.program.tree import BYTES, Access, Assign, For, Op, RefusedError, Value

RELATIONS = ("eq", "gt", "ge")
WORDS = ("doubled_high", "round_doubled_high", "shift", "round_shift", "logical_shift", "sat_shl", "clz", "float")
"""Operations of words alone."""
_WIDTHS = {name: bits for bits, name in LOW.items()}


class Form(NamedTuple):
    """How a number lies in vectors: the distance of its elements in bits, and how many low bits of them hold it."""

    spacing: int
    valid: int


class LaneForms:
    """The forms of what the iterations of a loop compute.

    Args:
        lanes: bits of a lane.
    """

    def __init__(self, program: Program, loop: For, lanes: int, statements: Sequence[Assign]) -> None:
        self.buffers, self.loop, self.lanes = program.buffers, loop, lanes
        own = own_buffers(loop.body)
        self.stored = [s for s in statements if s.target.buffer not in own]
        self.defined = {s.target.buffer: s.value for s in statements if s.target.buffer in own}
        self.uses = Counter[Value](access for s in statements for access in accesses(s.value))
        self._known = dict[Value, Form]()

    def definition(self, value: Value) -> Value | None:
        """What a number of an iteration is computed as; None of others."""
        return self.defined.get(value.buffer) if isinstance(value, Access) else None

    def is_scalar(self, value: Value) -> bool:
        """Whether a value is the same in all lanes."""
        if isinstance(value, Op):
            return all(map(self.is_scalar, value.args))
        if not isinstance(value, Access):
            return True
        return value.buffer not in self.defined and not any(i[self.loop.var] for i in value.index)

    def is_real(self, value: Value) -> bool:
        return isinstance(value, Access) and self.buffers[value.buffer].dtype == "f32"

    def is_word(self, value: Op) -> bool:
        """Whether an operation is one of words, or of floats."""
        return value.name in WORDS or any(map(self.is_real, value.args))

    def bits(self, value: Value) -> int:
        """Bits of the type of a value."""
        if isinstance(value, Op):
            return _WIDTHS.get(value.name, 32)
        return 8 * BYTES[self.buffers[value.buffer].dtype] if isinstance(value, Access) else 32

    def form(self, value: Value) -> Form:
        """How a value comes out of the instructions that compute it."""
        if isinstance(value, Op) and not self.is_scalar(value):
            raise RefusedError(f"no lanes compute {value} within another operation")
        if value not in self._known:
            defined, width = self.definition(value), max(self.lanes, self.bits(value))
            self._known[value] = Form(width, width) if defined is None else self._computed(defined, self.bits(value))
        return self._known[value]

    def _computed(self, value: Value, bits: int) -> Form:
        match value:
            case Op("sat8" | "sat16"):
                return Form(max(self.lanes, bits), bits)
            case Op("round_asr" | "asr", (a, int(amount))):
                least = next(width for width in (8, 16, 32) if width >= max(self.bits(a), min(amount, 32)))
                return self._wide_enough(Form(max(self.lanes, least, self.form(a).spacing), least), [a])
            case Op(name, (table, _)) if name == LOOKUP:
                width = max(self.lanes, self.bits(table))
                return Form(width, width)
            case Op() if self.is_word(value):
                return Form(32, 32)
            case Op("add" | "sub" | "mul") if not self.is_product(value):
                return self._wide_enough(Form(max(self.lanes, bits), bits), [term for term, _ in terms_of(value)])
            case Op("mul", (a, b)) if self.half(a, b, bits):
                return Form(bits, bits)
            case Op(name, args):
                widths = [self.bits(a) for a in args]
                wide = max(widths if name in RELATIONS else [bits, *widths])
                return self._wide_enough(Form(max(self.lanes, wide), wide), args)
        raise RefusedError(f"no lanes compute {value}")

    def _wide_enough(self, form: Form, operands: Sequence[Value]) -> Form:
        """The form with as many bits as vectors of operands have that lie alike, or come to."""
        has = [self.form(a) for a in operands if isinstance(a, Access) and not self.is_scalar(a)]
        valid = (h.valid if h.spacing == form.spacing else form.spacing for h in has)
        return Form(form.spacing, max([form.valid, *valid]))

    def is_product(self, value: Op) -> bool:
        """Whether it is a product of two numbers that may both be narrow, and no term of a sum."""
        by = value.args[-1]
        return value.name == "mul" and not isinstance(by, int) and not (isinstance(by, Access) and self.is_scalar(by))

    def half(self, a: Value, b: Value, bits: int) -> int:
        """The spacing of operands whose products have twice the width; 0 where that is not theirs."""
        half = bits // 2
        fits = half >= self.lanes and all(self.bits(v) <= half and self.form(v).spacing <= half for v in (a, b))
        return half if fits else 0


def terms_of(value: Value) -> list[tuple[Value, Value]]:
    """The terms of a sum, each with its factor."""
    match value:
        case Op("add", (a, b)):
            return [*terms_of(a), *terms_of(b)]
        case Op("sub", (0, b)):
            return [(b, -1)]
        case Op("sub", (a, b)):
            return [*terms_of(a), (b, -1)]
        case Op("mul", (a, b)):
            return [(a, b)]
    return [(value, 1)]
