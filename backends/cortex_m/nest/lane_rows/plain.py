"""Ops that are one instruction."""

from __future__ import annotations

from typing import ClassVar

from tosaic.backends.cortex_m.nest.lanes import Value
from tosaic.backends.cortex_m.nest.turn import LANE_ROWS, Form, LaneRow, Turn


class Plain(LaneRow):
    """One instruction on all operands as they are, in as many bits as the widest.

    `typed` is what stands before the bits in its suffix, where it has one.
    """

    mnemonic: ClassVar[str]
    typed: ClassVar[str]

    def form(self, turn: Turn, value: Value) -> Form:
        """All operands as they are, in as many bits as the widest."""
        bits = max(v.bits for v in (value, *value.operands))
        return Form(max(turn.lanes, bits), bits)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        form = turn.form(value)
        registers = [turn.fetch(v, part, form) for v in value.operands]
        name = f"{self.mnemonic}.{self.typed}{form.valid}" if self.typed else self.mnemonic
        return turn.new(name, ", ".join("{}" for _ in registers), *registers)


@LANE_ROWS.register
class Minimum(Plain):
    """The smaller one."""

    name = "min"
    mnemonic, typed = "vmin", "s"


@LANE_ROWS.register
class Maximum(Plain):
    """The larger one."""

    name = "max"
    mnemonic, typed = "vmax", "s"


@LANE_ROWS.register
class And(Plain):
    """Bits that both have."""

    name = "and"
    mnemonic, typed = "vand", ""


@LANE_ROWS.register
class Or(Plain):
    """Bits that either has."""

    name = "or"
    mnemonic, typed = "vorr", ""


@LANE_ROWS.register
class Xor(Plain):
    """Bits that one alone has."""

    name = "xor"
    mnemonic, typed = "veor", ""


@LANE_ROWS.register
class Invert(Plain):
    """Every bit the other way."""

    name = "invert"
    mnemonic, typed = "vmvn", ""


@LANE_ROWS.register
class Absolute(Plain):
    """The absolute value."""

    name = "abs"
    mnemonic, typed = "vabs", "s"


@LANE_ROWS.register
class LeadingZeros(Plain):
    """Zeros above the first one, of 32 bits."""

    name = "clz"
    mnemonic, typed = "vclz", "i"

    def form(self, turn: Turn, value: Value) -> Form:
        return Form(32, 32)
