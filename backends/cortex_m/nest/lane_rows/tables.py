"""Look-ups: gathers from tables in the params."""

from __future__ import annotations

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import lookup_order
from tosaic.backends.cortex_m.nest.lanes import Value
from tosaic.backends.cortex_m.nest.turn import LANE_ROWS, Form, LaneRow, Turn
from tosaic.support.errors import BackendError


@LANE_ROWS.register
class Table(LaneRow):
    """TABLE of 256 int8."""

    name = "table"

    def form(self, turn: Turn, value: Value) -> Form:
        return Form(turn.lanes, turn.lanes)

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        (a,), entries, lanes = value.operands, value.data, turn.lanes
        if entries is None:
            raise BackendError("a table has no entries")
        index = turn.fetch(a, part, Form(lanes, lanes))
        at = turn.memory.constant(value, str(lanes == 8), lambda: lookup_order(entries) if lanes == 8 else entries)
        if lanes == 16:
            index = turn.new("vadd.i16", "{}, {}", index, turn.general(turn.memory.number(128)))
        base = turn.standing(value, f"{at} + 128" if lanes == 32 else at)
        return turn.new("vldrb.u8" if lanes == 8 else f"vldrb.s{lanes}", "[{}, {}]", base, index, apart=True)


@LANE_ROWS.register
class LookupRow(LaneRow):
    """Entries of a TABLE of 513 int16, by segment."""

    name = "lookup"

    def form(self, turn: Turn, value: Value) -> Form:
        return Form(max(turn.lanes, 16), max(turn.lanes, 16))

    def emit(self, turn: Turn, value: Value, part: int) -> str:
        (segment,), entries, form = value.operands, value.data, turn.form(value)
        if entries is None:
            raise BackendError("a table has no entries")
        at = turn.memory.constant(value, "", lambda: entries.astype(np.int16))
        index, first = turn.fetch(segment, part, form), value.numbers[0]
        if form.spacing == 16:
            key = (segment, part, "unsigned")
            if key not in turn.parts:
                turn.parts[key] = turn.new("vadd.i16", "{}, {}", index, turn.general(turn.memory.number(256)))
            index, first = turn.parts[key], first - 256
        base = turn.standing((value, "base"), f"{at} + {2 * first}")
        kind = "u16" if form.spacing == 16 else "s32"
        return turn.new(f"vldrh.{kind}", "[{}, {}, uxtw #1]", base, index, apart=True)
