"""Floats in lanes of 32 bits (MVE-F)."""

from __future__ import annotations

from typing import ClassVar

from tosaic.backends.cortex_m.nest.lanes import RELATIONS, Value
from tosaic.backends.cortex_m.nest.turn import LANE_ROWS, Form, LaneRow, Turn
from tosaic.backends.cortex_m.program.block import BlockInstruction

_WORD = Form(32, 32)


class Real(LaneRow):
    """One instruction on floats."""

    mnemonic: ClassVar[str]

    def form(self, turn: Turn, value: Value) -> Form:
        return _WORD

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        registers = [turn.fetch(v, part, _WORD) for v in value.operands]
        return turn.new(self.mnemonic, ", ".join("{}" for _ in registers), *registers)


@LANE_ROWS.register
class FromInteger(Real):
    """The nearest float."""

    name = "to_real"
    mnemonic = "vcvt.f32.s32"


@LANE_ROWS.register
class ToInteger(Real):
    """The nearest integer, half to even: VCVTN, which saturates."""

    name = "from_real"
    mnemonic = "vcvtn.s32.f32"


@LANE_ROWS.register
class Negative(Real):
    """-a"""

    name = "real_negate"
    mnemonic = "vneg.f32"


@LANE_ROWS.register
class Magnitude(Real):
    """|a|"""

    name = "real_abs"
    mnemonic = "vabs.f32"


@LANE_ROWS.register
class Floor(Real):
    """The next integer below."""

    name = "real_floor"
    mnemonic = "vrintm.f32"


@LANE_ROWS.register
class Ceil(Real):
    """The next integer above."""

    name = "real_ceil"
    mnemonic = "vrintp.f32"


class _WithNumber(Real):
    """Two operands, of which the second may be a number in a general register."""

    commutes: ClassVar[bool] = True

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        a, b = value.operands
        if self.commutes and turn.row.is_scalar(a):
            a, b = b, a
        return turn.new(self.mnemonic, "{}, {}", turn.fetch(a, part, _WORD), turn.second(b, part, _WORD))


@LANE_ROWS.register
class Addition(_WithNumber):
    """a + b"""

    name = "real_add"
    mnemonic = "vadd.f32"


@LANE_ROWS.register
class Subtraction(_WithNumber):
    """a - b"""

    name = "real_sub"
    mnemonic = "vsub.f32"
    commutes = False


@LANE_ROWS.register
class Multiplication(_WithNumber):
    """a * b"""

    name = "real_mul"
    mnemonic = "vmul.f32"


@LANE_ROWS.register
class Larger(Real):
    """The larger float: VMAXNM leaves out what is no number; where that shall stay, it is compared."""

    name = "real_max"
    mnemonic = "vmaxnm.f32"
    predicates = True
    first = False

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        if not value.numbers[0]:
            return super().emit(turn, value, part)
        a, b = (turn.fetch(v, part, _WORD) for v in value.operands)
        greater, less = (a, b) if self.first else (b, a)
        result = turn.name()
        text = f"{{{result}}}, {{{a}}}\\nvpt.f32 gt, {{{greater}}}, {{{less}}}\\nvmovt {{{result}}}, {{{b}}}"
        if value.operands[1].number is None:
            text += f"\\nvpt.f32 ne, {{{b}}}, {{{b}}}\\nvmovt {{{result}}}, {{{b}}}"
        turn.code.append(BlockInstruction("vmov", text, (result,), apart=True))
        return result


@LANE_ROWS.register
class Smaller(Larger):
    """The smaller float, likewise."""

    name = "real_min"
    mnemonic = "vminnm.f32"
    first = True


@LANE_ROWS.register
class CompareReals(Real):
    """1 or 0: VCMP and a predicated VMOV."""

    name = "real_compare"
    predicates = True

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        a, b = (turn.fetch(v, part, _WORD) for v in value.operands)
        condition, result = RELATIONS[value.numbers[0]], turn.name()
        text = f"{{{result}}}, #0\\nvcmp.f32 {condition}, {{{a}}}, {{{b}}}\\nvpst\\nvmovt.i32 {{{result}}}, #1"
        turn.code.append(BlockInstruction("vmov.i32", text, (result,), apart=True))
        return result
