"""The floating-point unit of single precision: Cortex-M4, M7, M33 and up. A register `s` holds a float."""

from __future__ import annotations

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.target import Core

_REACH = (-1020, 1020)
"""Of VLDR and VSTR, in bytes."""


@ISAS.register
class Floats(Isa):
    """Loads and stores, and products that add up with one rounding."""

    name = "fp"
    rows = (
        Row("vldr.f32", 1, "d = a", formals(d="f32 s", a="f32 m"), "vldr {d}, {a}", _REACH, 4),
        Row("vstr.f32", 1, "d = a", formals(d="f32 m", a="f32 s"), "vstr {a}, {d}", _REACH, 4),
        Row("vfma.f32.s", 1, "d += a * b", formals(d="f32 s", a="f32 s", b="f32 s"), "vfma.f32 {d}, {a}, {b}"),
    )

    def on(self, core: Core) -> bool:
        return "fp" in core.isa and not core.mve
