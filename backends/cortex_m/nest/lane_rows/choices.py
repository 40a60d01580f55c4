"""Comparisons, and the choice between two values."""

from __future__ import annotations

from tosaic.backends.cortex_m.nest.lane_rows.plain import Plain
from tosaic.backends.cortex_m.nest.lanes import RELATIONS, Value
from tosaic.backends.cortex_m.nest.turn import LANE_ROWS, Form, LaneRow, Turn
from tosaic.backends.cortex_m.program.block import BlockInstruction


@LANE_ROWS.register
class Compare(LaneRow):
    """1 or 0: VCMP and a predicated VMOV."""

    name = "compare"
    predicates = True

    def form(self, turn: Turn, value: Value) -> Form:
        bits = max(v.bits for v in value.operands)
        return Form(max(turn.lanes, bits), bits)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        form = turn.form(value)
        a, b = (turn.fetch(v, part, form) for v in value.operands)
        condition, kind = RELATIONS[value.numbers[0]], "i" if value.numbers[0] == 0 else "s"
        result = turn.name()
        text = f"{{{result}}}, #0\\nvcmp.{kind}{form.valid} {condition}, {{{a}}}, {{{b}}}\\nvpst\\n"
        text += f"vmovt.i{form.valid} {{{result}}}, #1"
        turn.code.append(BlockInstruction(f"vmov.i{form.valid}", text, (result,), apart=True))
        return result


@LANE_ROWS.register
class SelectRow(Plain):
    """One of two values: VCMP and VPSEL."""

    name = "select"
    predicates = True

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        form = turn.form(value)
        condition, a, b = (turn.fetch(v, part, form) for v in value.operands)
        result = turn.name()
        text = f"ne, {{{condition}}}, zr\\nvpsel {{{result}}}, {{{a}}}, {{{b}}}"
        turn.code.append(BlockInstruction(f"vcmp.i{form.valid}", text, (result,)))
        return result
