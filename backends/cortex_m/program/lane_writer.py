"""Statements in lanes of vectors that compute what statements of single numbers do."""

from __future__ import annotations

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.lane_forms import Form, LaneForms, terms_of
from tosaic.backends.cortex_m.program.lane_vectors import VECTOR, LaneVectors
from tosaic.backends.cortex_m.program.ops import LOOKUP, LOW
from tosaic.backends.cortex_m.program.tree import Access, Op, RefusedError, Value

_WORD = Form(32, 32)
_NUMBERS = ("doubled_high", "round_doubled_high", "add", "sub", "mul")
"""Operations of words, or of floats, whose second operand may be a number."""
_IN_PLACE = ("at_least", "at_most", "max_nan", "min_nan")


class LaneWriter:
    """One vector of iterations of a loop.

    Args:
        forms: of what is computed.
        out: the registers and the statements.
        first, left: the first of the iterations, and how many there are.
    """

    def __init__(self, forms: LaneForms, out: LaneVectors, first: int, left: int) -> None:
        self.forms, self.out, self.first, self.left = forms, out, first, left
        self.parts = dict[tuple[Value, int, Form | None], Access]()

    def write(self) -> None:
        """Write what the iterations store.

        Raises:
            RefusedError: lanes have no way to compute it.
        """
        for s in self.forms.stored:
            self._store(s.target, s.value)

    # Vectors.

    def fetch(self, value: Value, part: int, form: Form) -> Access:
        """The vector of a part of a value, in which at least the bits of a form are valid."""
        key = (value, part, form)
        if key not in self.parts:
            self.parts[key] = self._converted(value, part, form)
        return self.parts[key]

    def _converted(self, value: Value, part: int, form: Form) -> Access:
        if self.forms.is_scalar(value):
            return self.out.filled(value, form.valid)
        has, out = self.forms.form(value), self.out
        if has.spacing < form.spacing:
            half = form.spacing // 2
            return out.new(form.spacing, self.fetch(value, part // 2, Form(half, half)), every=2, first=part % 2)
        if has.spacing > form.spacing:
            wide = Form(2 * form.spacing, form.spacing)
            halves = (self.fetch(value, 2 * part + i, wide) for i in (0, 1))
            return out.packed(form.spacing, [self._cut(half, form.spacing) for half in halves])
        if has.valid >= form.valid:
            return self._whole(value, part)
        return out.new(form.valid, self.fetch(value, part, Form(form.spacing, form.valid // 2)), every=2)

    def _whole(self, value: Value, part: int) -> Access:
        """The vector of a part of a value as its instructions leave it."""
        key = (value, part, None)
        if key not in self.parts:
            assert isinstance(value, Access)
            defined = self.forms.definition(value)
            found = self._load(value, part) if defined is None else self._made(value, defined, part)
            self.parts[key] = found
        return self.parts[key]

    def _cut(self, vector: Access, bits: int) -> tuple[Value, int]:
        """The low bits of elements that lie twice as far apart, and the distance of these."""
        return (vector, 2) if self.out.width(vector) == bits else (Op(LOW[bits], (vector,)), 1)

    # Memory.

    def _place(self, access: Access, bits: int, part: int, lane: Affine) -> Access:
        """The element of memory that is one of a part of numbers of so many bits."""
        parts, place, left = bits // self.forms.lanes, 0, part
        iteration = lane * parts
        while parts > 1:
            parts //= 2
            place, left = place + parts * (left % 2), left // 2
        where = {self.forms.loop.var: iteration + place + self.first}
        return Access(access.buffer, tuple(i.at(where) for i in access.index))

    def _lanes(self, access: Access, bits: int) -> int:
        """Elements of a vector that exist in memory; numbers in parts lie in whole vectors.

        Raises:
            RefusedError: there are none in the lanes behind the last iteration.
        """
        if bits == self.forms.lanes:
            return self.left
        lanes = VECTOR // self.forms.lanes
        if self.left < lanes:
            raise RefusedError(f"{access} has no {lanes} elements in vectors of {VECTOR // bits}")
        return VECTOR // bits

    def _load(self, value: Access, part: int) -> Access:
        bits = max(self.forms.lanes, self.forms.bits(value))
        source = self._place(value, bits, part, self.out.lane())
        if self.out.buffers[value.buffer].memory == "q" and source.index[-1] != self.out.lane():
            raise RefusedError(f"{value} is no lane of a vector that is read whole")
        return self.out.new(bits, source, real=self.forms.is_real(value), lanes=self._lanes(value, bits))

    def _store(self, target: Access, value: Value) -> None:
        size = self.forms.bits(target)
        spacing = max(size, self.forms.lanes)
        for part in range(spacing // self.forms.lanes):
            vector = self.fetch(value, part, Form(spacing, size))
            lane = self.out.lane()
            element = self.out.elements(vector, lane * (spacing // self.out.width(vector)))
            self.out.loop(self._lanes(target, spacing), lane, self._place(target, spacing, part, lane), element)

    # Operations.

    def _made(self, value: Access, defined: Value, part: int) -> Access:
        """The vector of a part of what is computed."""
        form = self.forms.form(value)
        match defined:
            case Op("sat8" | "sat16", (a,)):
                return self._saturated(a, part, form)
            case Op("round_asr" | "asr" as name, (a, amount)):
                return self.out.new(form.valid, Op(name, (self.fetch(a, part, form), amount)))
            case Op(name, (Access() as table, index)) if name == LOOKUP:
                bytes_ = self.forms.bits(table) == 8
                return (self._byte_of if bytes_ else self._half_of)(table, index, part, form)
            case Op(name) if name in _IN_PLACE:
                return self._changed(defined, part)
            case Op() if self.forms.is_word(defined):
                return self._word(defined, part, real=self.forms.is_real(value))
            case Op("add" | "sub" | "mul") if not self.forms.is_product(defined):
                return self._sum(defined, part, form)
            case Op("mul", (a, b)):
                return self._product(a, b, part, form)
            case Op(name, args):
                return self.out.new(form.valid, Op(name, tuple(self.fetch(a, part, form) for a in args)))
        raise RefusedError(f"no lanes compute {defined}")

    def _saturated(self, a: Value, part: int, form: Form) -> Access:
        vector = self._narrowed(a, part, form.spacing)
        while (width := self.out.width(vector)) > form.valid:
            vector = self._narrower(vector, width // 2)
        return vector

    def _narrower(self, vector: Access, half: int, amount: int = 0) -> Access:
        """A vector shifted and saturated, each element where it is."""
        return self.out.new(half, _narrow(vector, half, amount), lanes=VECTOR // half // 2, apart=2)

    def _narrowed(self, a: Value, part: int, spacing: int) -> Access:
        """A part of a value in elements so far apart, saturated to these; the shift before is joined."""
        has, wide = self.forms.form(a), 2 * spacing
        source, amount = a, 0
        match self.forms.definition(a):
            case Op("round_asr", (shifted, int(by))) if self.forms.uses[a] == 1 and by <= has.valid // 2:
                source, amount = shifted, by
        if has.spacing == spacing:
            if not amount or has.valid == 8:
                return self.fetch(a, part, has)
            return self._narrower(self.fetch(source, part, has), has.valid // 2, amount)
        if has.spacing > wide:
            halves, amount = [self._narrowed(a, 2 * part + i, wide) for i in (0, 1)], 0
        else:
            source, amount = (source, amount) if has.valid == wide else (a, 0)
            halves = [self.fetch(source, 2 * part + i, Form(wide, wide)) for i in (0, 1)]
        return self.out.packed(spacing, [(_narrow(half, spacing, amount), 1) for half in halves])

    def _byte_of(self, table: Access, index: Value, part: int, form: Form) -> Access:
        """Elements of a table of bytes: in lanes of words these count; else bytes without a sign."""
        out, spacing = self.out, form.spacing
        if spacing == _WORD.spacing:
            return out.new(spacing, Op(LOOKUP, (table, self.fetch(index, part, form))))
        if (table.index, out.buffers[table.buffer].shape) != ((Affine.of(128),), (256,)):
            raise RefusedError(f"{table.buffer} is no table of all bytes")
        rolled, vector = out.rolled(table.buffer), self.fetch(index, part, Form(spacing, 8))
        unsigned = Op("bit_and", (vector, 255))
        if spacing == 8:
            return out.new(spacing, Op(LOOKUP, (rolled, unsigned)))
        counted = out.new(spacing, unsigned, every=spacing // out.width(vector))
        return out.new(spacing, Op(LOOKUP, (rolled, counted)))

    def _half_of(self, table: Access, index: Value, part: int, form: Form) -> Access:
        """Elements of a table of halves, which numbers without a sign count."""
        return self.out.new(form.spacing, Op(LOOKUP, (table, self.fetch(index, part, form))))

    def _word(self, value: Op, part: int, *, real: bool) -> Access:
        """Operations of words and floats; where the second operand may be a number, it is in a general register."""
        args, scalar = value.args, self.forms.is_scalar
        if len(args) == 2 and value.name in _NUMBERS:
            a, b = reversed(args) if scalar(args[0]) and value.name != "sub" else args
            if scalar(b) and not scalar(a):
                vector = self.fetch(a, part, _WORD)
                return self.out.new(32, Op(value.name, (vector, self.out.number(b))), real=real)
        return self.out.new(32, Op(value.name, tuple(self.fetch(a, part, _WORD) for a in args)), real=real)

    def _changed(self, value: Op, part: int) -> Access:
        """Operations that change the vector of their first operand."""
        first = value.args[0]
        a, b = (self.fetch(operand, part, _WORD) for operand in value.args)
        target = self.out.new(32, a, real=True) if self.forms.uses[first] > 1 or self.forms.is_scalar(first) else a
        self.out.changed(target, Op(value.name, (target, b)))
        return target

    # Sums and products.

    def _product(self, a: Value, b: Value, part: int, form: Form) -> Access:
        a, b = sorted((a, b), key=self.forms.is_scalar)
        if form.valid == form.spacing and (half := self.forms.half(a, b, form.valid)):
            narrow = tuple(self.fetch(v, part // 2, Form(half, half)) for v in (a, b))
            return self.out.new(form.spacing, Op("mul", narrow), every=2, first=part % 2)
        vector = self.fetch(a, part, form)
        other = self.out.low(b, form.valid) if self.forms.is_scalar(b) else self.fetch(b, part, form)
        return self.out.new(form.valid, Op("mul", (vector, other)))

    def _sum(self, value: Value, part: int, form: Form) -> Access:
        terms, bits, out = terms_of(value), form.valid, self.out
        added = [term for term, _ in terms if self.forms.is_scalar(term)]
        (first, factor), *others = [(term, by) for term, by in terms if not self.forms.is_scalar(term)]
        total = self._begun(first, factor, part, form, added)
        owned = factor != 1 or self.forms.uses[first] == 1
        for term, by in others:
            vector = self.fetch(term, part, form)
            if isinstance(by, int):
                total, owned = out.new(bits, Op("add" if by == 1 else "sub", (total, vector))), True
            elif owned:
                out.changed(total, Op("mul", (vector, out.low(by, bits))), adds=True)
            else:
                product = out.new(bits, Op("mul", (vector, out.low(by, bits))))
                total, owned = out.new(bits, Op("add", (product, total))), True
        for number in added:
            total = out.new(bits, Op("add", (total, out.low(number, bits))))
        return total

    def _begun(self, term: Value, factor: Value, part: int, form: Form, added: list[Value]) -> Access:
        """The vector of the first term of a sum; what it can add with its product is taken from `added`."""
        bits, half, out = form.valid, form.spacing // 2, self.out
        if isinstance(factor, int) and 1 < factor <= 1 << half and self.forms.form(term) == Form(half, half):
            narrow = self.fetch(term, part // 2, Form(half, half))
            return out.new(form.spacing, Op("mul", (narrow, factor)), every=2, first=part % 2)
        vector = self.fetch(term, part, form)
        if isinstance(factor, int):
            scaled = Op("sub", (0, vector)) if factor == -1 else Op("mul", (vector, factor))
            return vector if factor == 1 else out.new(bits, scaled)
        assert isinstance(factor, Access)
        if added and self.forms.uses[term] == 1 and (filled := out.staying(factor, bits)) is not None:
            out.changed(vector, Op("add", (Op("mul", (vector, filled)), out.low(added.pop(), bits))))
            return vector
        return out.new(bits, Op("mul", (vector, out.low(factor, bits))))


def _narrow(vector: Access, bits: int, amount: int) -> Value:
    """A vector shifted to the right, rounded, and saturated."""
    return Op(f"sat{bits}", (Op("round_asr", (vector, amount)) if amount else vector,))
