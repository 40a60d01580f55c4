"""Thumb-2 without extensions: Cortex-M3 and up."""

from __future__ import annotations

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.target import Core

REACH = (-255, 4095)
"""Of LDR and STR with an immediate offset, in bytes."""
LDRD = "ldrd {d0}, {d1}, {a}"
"""Two words from addresses that 4 divides."""


@ISAS.register
class Scalar(Isa):
    """Loads, stores, and a multiply-accumulate of words."""

    name = "scalar"
    rows = (
        Row("ldrsb", 1, "d = a", formals(d="i32 r", a="i8 m"), "ldrsb.w {d}, {a}", REACH),
        Row("ldrsh", 1, "d = a", formals(d="i32 r", a="i16 m"), "ldrsh.w {d}, {a}", REACH),
        Row("ldr", 1, "d = a", formals(d="i32 r", a="i32 m"), "ldr.w {d}, {a}", REACH, 4, LDRD),
        Row("strh", 1, "d = a", formals(d="i16 m", a="i32 r"), "strh.w {a}, {d}", REACH),
        Row("str", 1, "d = a", formals(d="i32 m", a="i32 r"), "str.w {a}, {d}", REACH, 4),
        Row(
            "mla",
            1,
            "d += a * b",
            formals(d="i32 r", a="i32 r", b="i32 r"),
            "mla {d}, {a}, {b}, {d}",
            first="mul {d}, {a}, {b}",
        ),
        Row("smlal", 1, "d += a * b", formals(d="i64 p", a="i32 r", b="i32 r"), "smlal {d0}, {d1}, {a}, {b}"),
    )

    def on(self, core: Core) -> bool:
        return not core.baseline
