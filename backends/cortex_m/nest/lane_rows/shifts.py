"""Shifts, and what narrows behind them."""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.lanes import Value
from tosaic.backends.cortex_m.nest.turn import LANE_ROWS, Form, LaneRow, Turn


@LANE_ROWS.register
class ShiftRound(LaneRow):
    """a >> amount, half rounded up: VRSHR."""

    name = "shift_round"
    mnemonic = "vrshr"

    def form(self, turn: Turn, value: Value) -> Form:
        (a,) = value.operands
        bits = next(bits for bits in (8, 16, 32) if bits >= max(a.bits, min(value.numbers[0], 32)))
        return Form(max(turn.lanes, bits, turn.form(a).spacing), bits)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        form = turn.form(value)
        register = turn.fetch(value.operands[0], part, form)
        return turn.new(f"{self.mnemonic}.s{form.valid}", f"{{}}, #{value.numbers[0]}", register)


@LANE_ROWS.register
class Shift(ShiftRound):
    """a >> amount, rounded down: VSHR."""

    name = "shift"
    mnemonic = "vshr"


@LANE_ROWS.register
class Narrow(LaneRow):
    """a, saturated: VQMOVN, or VQRSHRN with the shift before it."""

    name = "narrow"

    def form(self, turn: Turn, value: Value) -> Form:
        (a,), (bits,) = value.operands, value.numbers
        spacing = max(turn.lanes, bits)
        has = turn.form(a)
        return has if has.spacing <= spacing and a.bits <= bits else Form(spacing, bits)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        (a,), (bits,) = value.operands, value.numbers
        form = turn.form(value)
        if form == turn.form(a):
            return turn.fetch(a, part, form)
        register, width = self._narrowed(turn, a, part, form.spacing)
        for wide in (32, 16):
            if width == wide > bits:
                register, width = turn.new(f"vqmovnb.s{wide}", "{}", register), wide // 2
        return register

    def _narrowed(self, turn: Turn, a: Value, part: int, spacing: int) -> tuple[str, int]:
        """A part of a value in lanes of `spacing`, saturated to the bits that hold it; the shift before is joined."""
        has, wide = turn.form(a), 2 * spacing
        shifts = a.op == "shift_round" and turn.row.uses[a] == 1 and a.numbers[0] <= has.valid // 2
        if has.spacing == spacing:
            if shifts and has.valid > 8:
                register = turn.fetch(a.operands[0], part, has)
                return turn.new(f"vqrshrnb.s{has.valid}", f"{{}}, #{a.numbers[0]}", register), has.valid // 2
            return turn.fetch(a, part, has), has.valid
        name, amount, source, form = "vqmovn", "", a, Form(wide, wide)
        if has == form and shifts:
            name, amount, source = "vqrshrn", f", #{a.numbers[0]}", a.operands[0]
        if has.spacing == wide:
            halves = [turn.fetch(source, 2 * part + i, form) for i in (0, 1)]
        else:
            halves = [self._narrowed(turn, a, 2 * part + i, wide)[0] for i in (0, 1)]
        return turn.pack(name, f".s{wide}", amount, halves), spacing


@LANE_ROWS.register
class ShiftBy(LaneRow):
    """a shifted by the lanes of another value: VSHL, VRSHL, VQSHL."""

    name = "shift_by"

    def form(self, turn: Turn, value: Value) -> Form:
        return Form(32, 32)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        unsigned, rounding, saturating = value.numbers
        a, amount = (turn.fetch(v, part, Form(32, 32)) for v in value.operands)
        name = "vrshl" if rounding else "vqshl" if saturating else "vshl"
        return turn.new(f"{name}.{'u' if unsigned else 's'}32", "{}, {}", a, amount)


@LANE_ROWS.register
class ShiftSaturating(LaneRow):
    """a << amount, saturated: VQSHL."""

    name = "shift_saturating"

    def form(self, turn: Turn, value: Value) -> Form:
        return Form(32, 32)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        return turn.new("vqshl.s32", f"{{}}, #{value.numbers[0]}", turn.fetch(value.operands[0], part, Form(32, 32)))
