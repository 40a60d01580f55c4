"""The DSP extension: Cortex-M4, M7, M33 and up. A general register holds four bytes or two halves."""

from __future__ import annotations

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.isa.scalar import LDRD, REACH
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.target import Core


def _half_product(first: int, second: int) -> Row:
    """A product of one half of a register and one of another."""
    name = f"smla{'bt'[first]}{'bt'[second]}"
    operands = formals(d="i32 r", a="i16 r", b="i16 r")
    return Row(name, 1, f"d += a[{first}] * b[{second}]", operands, f"{name} {{d}}, {{a}}, {{b}}, {{d}}")


@ISAS.register
class Dsp(Isa):
    """Products of two halves that add up, and bytes that widen to halves."""

    name, base = "dsp", "scalar"
    rows = (
        Row("ldr.4b", 4, "d[l] = a[l]", formals(d="i8 r", a="i8 m"), "ldr.w {d}, {a}", REACH),
        Row("ldr.2h", 2, "d[l] = a[l]", formals(d="i16 r", a="i16 m"), "ldr.w {d}, {a}", REACH, 4, LDRD),
        Row("ldr.2h.any", 2, "d[l] = a[l]", formals(d="i16 r", a="i16 m"), "ldr.w {d}, {a}", REACH),
        Row("str.2h", 2, "d[l] = a[l]", formals(d="i16 m", a="i16 r"), "str.w {a}, {d}", REACH, 4),
        Row("sxtb16", 2, "d[l] = a[2 * l]", formals(d="i16 r", a="i8 r"), "sxtb16 {d}, {a}"),
        Row("sxtb16.ror", 2, "d[l] = a[2 * l + 1]", formals(d="i16 r", a="i8 r"), "sxtb16 {d}, {a}, ror #8"),
        Row(
            "ldr+sxtb16",
            2,
            "d[l] = a[2 * l]",
            formals(d="i16 r", a="i8 m"),
            "ldr.w {d}, {a}; sxtb16 {d}, {d}",
            REACH,
            4,
            LDRD,
        ),
        Row(
            "ldr+sxtb16.ror",
            2,
            "d[l] = a[2 * l + 1]",
            formals(d="i16 r", a="i8 m"),
            "ldr.w {d}, {a}; sxtb16 {d}, {d}, ror #8",
            REACH,
            4,
            LDRD,
        ),
        Row(
            "rev16+eor",
            2,
            "d[l] = a[2 * l] * 256 + 127 - a[2 * l + 1]",
            formals(d="i16 r", a="i8 r"),
            "rev16 {d}, {a}; eor {d}, {d}, #0x7f007f",
        ),
        Row("sxtb16.h", 2, "d[l] = low(a[l])", formals(d="i16 r", a="i16 r"), "sxtb16 {d}, {a}"),
        Row(
            "lsl.4b",
            4,
            "d[l] = low(a[l] * 16)",
            formals(d="i8 r", a="i8 r"),
            "lsl.w {d}, {a}, #4; bic {d}, {d}, #0x0f0f0f0f",
        ),
        Row("bic.4b", 4, "d[l] = bit_and(a[l], -16)", formals(d="i8 r", a="i8 r"), "bic {d}, {a}, #0x0f0f0f0f"),
        *(_half_product(first, second) for first in (0, 1) for second in (0, 1)),
        Row("smlald", 2, "d += a[l] * b[l]", formals(d="i64 p", a="i16 r", b="i16 r"), "smlald {d0}, {d1}, {a}, {b}"),
        Row("smlad", 2, "d += a[l] * b[l]", formals(d="i32 r", a="i16 r", b="i16 r"), "smlad {d}, {a}, {b}, {d}"),
    )

    def on(self, core: Core) -> bool:
        return "dsp" in core.isa
