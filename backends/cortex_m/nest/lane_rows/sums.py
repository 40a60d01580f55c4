"""Sums of values times numbers, and products."""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.lanes import Value
from tosaic.backends.cortex_m.nest.turn import LANE_ROWS, MOST_CONSTANTS, Form, LaneRow, Turn


@LANE_ROWS.register
class Sum(LaneRow):
    """Values times numbers and a number, added up: VADD, VSUB, VMLA, VMLAS; shifts for powers of two."""

    name = "sum"

    def form(self, turn: Turn, value: Value) -> Form:
        return Form(max(turn.lanes, value.bits), value.bits)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        form, (*factors, constant) = turn.form(value), value.numbers
        terms = list(zip(value.operands, factors, strict=True))
        scalars = [(turn.row.scalar(v), f) for v, f in terms if turn.row.is_scalar(v)]
        expressions = [at if f == 1 else f"{at} * {f}" for at, f in scalars]
        expressions += [turn.memory.number(constant)] if constant else []
        added, kind = " + ".join(expressions), f".i{form.valid}"
        vectors = sorted(((v, f) for v, f in terms if not turn.row.is_scalar(v)), key=lambda term: _rank(term[1]))
        if not vectors:
            return turn.duplicate(added, form.valid)
        total, owned = "", False
        for v, factor in vectors:
            mine = turn.row.uses[v] == 1 and not turn.row.is_scalar(v)
            if not total:
                total, owned, added = self._first_term(turn, v, factor, part, form, added if mine else "", added)
            elif factor in (1, -1):
                total = turn.new(("vadd" if factor == 1 else "vsub") + kind, "{}, {}", total, turn.fetch(v, part, form))
                owned = True
            else:
                by = turn.general(turn.memory.number(factor))
                if owned:
                    turn.change(f"vmla.s{form.valid}", total, "{}, {}", turn.fetch(v, part, form), by)
                else:
                    product = turn.new(f"vmul{kind}", "{}, {}", turn.fetch(v, part, form), by)
                    total, owned = turn.new(f"vadd{kind}", "{}, {}", product, total), True
        return turn.new(f"vadd{kind}", "{}, {}", total, turn.general(added)) if added else total

    def _first_term(
        self, turn: Turn, v: Value, factor: int, part: int, form: Form, joined: str, added: str
    ) -> tuple[str, bool, str]:
        """The register of the first term, whether it may be changed, and what is still to be added to it."""
        if factor == 1:
            return turn.fetch(v, part, form), turn.row.uses[v] == 1, added
        power = factor.bit_length() - 1 if factor > 0 and factor.bit_count() == 1 else 0
        half = form.spacing // 2
        if power and turn.form(v).spacing == half == turn.form(v).valid and power <= half:
            register = turn.fetch(v, part // 2, Form(half, half))
            return turn.new(f"vshll{'bt'[part % 2]}.s{half}", f"{{}}, #{power}", register), True, added
        register = turn.fetch(v, part, form)
        if factor != -1 and joined and len(turn.constants) < MOST_CONSTANTS:
            by = turn.duplicate(turn.memory.number(factor), form.valid)
            return turn.change(f"vmlas.s{form.valid}", register, "{}, {}", by, turn.general(joined)), True, ""
        if power:
            return turn.new(f"vshl.i{form.valid}", f"{{}}, #{power}", register), True, added
        if factor == -1:
            return turn.new(f"vneg.s{form.valid}", "{}", register), True, added
        by = turn.general(turn.memory.number(factor))
        return turn.new(f"vmul.i{form.valid}", "{}, {}", register, by), True, added


@LANE_ROWS.register
class ProductRow(LaneRow):
    """a * b: VMULL of narrower lanes where they hold both, else VMUL."""

    name = "mul"

    def form(self, turn: Turn, value: Value) -> Form:
        wide = max(v.bits for v in value.operands)
        if self._half(turn, value):
            return Form(value.bits, value.bits)
        spacing = max(turn.lanes, wide, value.bits)
        return Form(spacing, max(wide, value.bits))

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        a, b = sorted(value.operands, key=turn.row.is_scalar)
        form = turn.form(value)
        if half := self._half(turn, value):
            narrow = Form(half, half)
            factors = [turn.fetch(v, part // 2, narrow) for v in (a, b)]
            return turn.new(f"vmull{'bt'[part % 2]}.s{half}", "{}, {}", *factors)
        return turn.new(f"vmul.i{form.valid}", "{}, {}", turn.fetch(a, part, form), turn.second(b, part, form))

    def _half(self, turn: Turn, value: Value) -> int:
        """The spacing of operands that VMULL takes, or 0 where VMUL is used."""
        half = value.bits // 2
        fits = half >= turn.lanes and all(v.bits <= half and turn.form(v).spacing <= half for v in value.operands)
        return half if fits else 0


@LANE_ROWS.register
class HighHalf(LaneRow):
    """a * b >> 31, rounded or not: VQRDMULH, VQDMULH."""

    name = "high_half"

    def form(self, turn: Turn, value: Value) -> Form:
        return Form(32, 32)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        a, b = value.operands
        if turn.row.is_scalar(a):
            a, b = b, a
        name = "vqrdmulh.s32" if value.numbers[0] else "vqdmulh.s32"
        return turn.new(name, "{}, {}", turn.fetch(a, part, Form(32, 32)), turn.second(b, part, Form(32, 32)))


def _rank(factor: int) -> int:
    """What a sum begins with: a value as it is, then a product, then what is taken away."""
    return 0 if factor == 1 else 2 if factor == -1 else 1
