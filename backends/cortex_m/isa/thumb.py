"""Thumb of 16 bits: Cortex-M0, M0+ and M23. Sums lie in high registers."""

from __future__ import annotations

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.target import Core


@ISAS.register
class Thumb(Isa):
    """Loads with small offsets, and a product of words that takes the place of a factor."""

    name = "thumb"
    rows = (
        Row("ldr", 1, "d = a", formals(d="i32 r", a="i32 m"), "ldr {d}, {a}", (0, 124), 4, low=True),
        Row("ldrb", 1, "d = a", formals(d="i32 r", a="i8 m"), "ldrb {d}, {a}; sxtb {d}, {d}", (0, 31), low=True),
        Row("ldrh", 1, "d = a", formals(d="i32 r", a="i16 m"), "ldrh {d}, {a}; sxth {d}, {d}", (0, 62), 2, low=True),
        Row("muls", 1, "d += a * b", formals(d="i32 h", a="i32 r", b="i32 r"), "muls {a}, {b}; add {d}, {a}", low=True),
    )

    def on(self, core: Core) -> bool:
        return core.baseline
