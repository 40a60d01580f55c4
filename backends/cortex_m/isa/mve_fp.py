"""M-profile vectors of floats (MVE-F): four of 32 bits in a register."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.isa.mve import FAR, NEAR, PAIR, spread, zeros
from tosaic.backends.cortex_m.isa.mve_lanes import both, chosen, number, one
from tosaic.backends.cortex_m.isa.mve_memory import moved
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.target import Core

_BOUND = "vpt.f32 gt, {}\\nvmovt {{d}}, {{b}}"
_NO_NUMBER = "\\nvpt.f32 ne, {b}, {b}\\nvmovt {d}, {b}"
"""Bounds go to the lanes that lie beyond them; nothing is greater than what is no number, which stays."""


def _bound(name: str, text: str) -> Row:
    operands = formals(d="f32 q", b="f32 q")
    return Row(name, 4, f"d[l] = {name}(d[l], b[l])", operands, text, masks=True)


def _lanes() -> Iterator[Row]:
    """Each lane of a vector from the same lanes of others."""
    for name in ("add", "sub", "mul"):
        yield both(f"v{name}.f32", name, "f32", f"v{name}.f32")
        yield number(f"v{name}.f32.r", name, "f32", f"v{name}.f32")
    for name, op in (("vmaxnm", "max_number"), ("vminnm", "min_number")):
        yield both(f"{name}.f32", op, "f32", f"{name}.f32")
    for name, op in (("vneg", "neg"), ("vabs", "magnitude"), ("vrintm", "floor"), ("vrintp", "ceil")):
        yield one(f"{name}.f32", f"d[l] = {op}(a[l])", "f32", f"{name}.f32 {{d}}, {{a}}")
    yield one("vcvt.f32.s32", "d[l] = float(a[l])", "f32", "vcvt.f32.s32 {d}, {a}", "i32")
    yield one("vcvtn.s32.f32", "d[l] = nearest(a[l])", "i32", "vcvtn.s32.f32 {d}, {a}", "f32")


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
        _bound("at_least", _BOUND.format("{b}, {d}")),
        _bound("at_most", _BOUND.format("{d}, {b}")),
        _bound("max_nan", _BOUND.format("{b}, {d}") + _NO_NUMBER),
        _bound("min_nan", _BOUND.format("{d}, {b}") + _NO_NUMBER),
        *_lanes(),
        *chosen("f32", "f"),
    )

    def on(self, core: Core) -> bool:
        return "mve.fp" in core.isa
