"""M-profile vectors of floats (MVE-F): four of 32 bits in a register."""

from __future__ import annotations

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.isa.mve import moved, spread
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.target import Core


def _bound(name: str, beyond: str) -> Row:
    """A vector of bounds in the lanes that lie beyond it; nothing is greater than what is no number, which stays."""
    text = f"vpt.f32 gt, {beyond}\\nvmovt {{d}}, {{b}}"
    return Row(name, 4, f"d[l] = {name}(d[l], b[l])", formals(d="f32 q", b="f32 q"), text)


@ISAS.register
class MveFloats(Isa):
    """Vectors of floats: loads and stores, products that add up with one rounding, bounds."""

    name, base = "mve_fp", "mve"
    rows = (
        *moved("f32", "f32"),
        spread("f32"),
        Row("vmov.f32", 4, "d[l] = a[l]", formals(d="f32 q", a="f32 q"), "vmov {d}, {a}"),
        Row("vfma.f32", 4, "d[l] += a[l] * b[l]", formals(d="f32 q", a="f32 q", b="f32 q"), "vfma.f32 {d}, {a}, {b}"),
        _bound("at_least", "{b}, {d}"),
        _bound("at_most", "{d}, {b}"),
    )

    def on(self, core: Core) -> bool:
        return "mve.fp" in core.isa
