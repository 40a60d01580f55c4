"""M-profile vectors of floats (MVE-F): four of 32 bits in a register."""

from __future__ import annotations

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.isa.mve import FAR, NEAR, PAIR, moved, spread, zeros
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.target import Core


def _bound(name: str, beyond: str) -> Row:
    """A vector of bounds in the lanes that lie beyond it; nothing is greater than what is no number, which stays."""
    text = f"vpt.f32 gt, {beyond}\\nvmovt {{d}}, {{b}}"
    return Row(name, 4, f"d[l] = {name}(d[l], b[l])", formals(d="f32 q", b="f32 q"), text, masks=True)


@ISAS.register
class MveFloats(Isa):
    """Vectors of floats: loads and stores, products that add up with one rounding, bounds, and numbers."""

    name, base = "mve_fp", "mve"
    rows = (
        *moved("f32", "f32"),
        spread("f32"),
        zeros("f32"),
        Row("vmov.f32", 4, "d[l] = a[l]", formals(d="f32 q", a="f32 q"), "vmov {d}, {a}", masks=True),
        Row(
            "ldrd.f32", 2, "d[l] = a[l]", formals(d="f32 r", a="f32 m"), "ldrd {d0}, {d1}, {a}", PAIR, 4, moves=PAIR[1]
        ),
        Row("ldr.f32", 1, "d = a", formals(d="f32 r", a="f32 m"), "ldr {d}, {a}", FAR, 4, moves=NEAR),
        Row(
            "vfma.f32.r",
            4,
            "d[l] += b * a[l]",
            formals(d="f32 q", a="f32 q", b="f32 r"),
            "vfma.f32 {d}, {a}, {b}",
            masks=True,
        ),
        Row("vfma.f32", 4, "d[l] += a[l] * b[l]", formals(d="f32 q", a="f32 q", b="f32 q"), "vfma.f32 {d}, {a}, {b}"),
        _bound("at_least", "{b}, {d}"),
        _bound("at_most", "{d}, {b}"),
    )

    def on(self, core: Core) -> bool:
        return "mve.fp" in core.isa
