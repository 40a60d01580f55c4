"""M-profile vectors (MVE, Helium): Cortex-M55 and up. A vector register `q` holds 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.isa.mve_lanes import chosen, narrowed, plain, shifts, spaced, widened, words
from tosaic.backends.cortex_m.isa.mve_memory import (
    LETTERS,
    STEPS,
    WIDTHS,
    apart,
    looked_up,
    moved,
    spatial_tiles,
    whole_words,
)
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.tree import BYTES, INTEGERS, REGISTERS
from tosaic.backends.target import Core

PAIR, FAR, NEAR = (-1020, 1020), (-255, 4095), 255
"""Bytes that STRD and STR reach, and that STR moves a pointer on by."""


def spread(dtype: str) -> Row:
    """A number in each lane."""
    lanes, text = REGISTERS["q"] // BYTES[dtype], f"vdup.{8 * BYTES[dtype]} {{d}}, {{a}}"
    operands = formals(d=f"{dtype} q", a=f"{'f32' if dtype == 'f32' else 'i32'} r")
    return Row(f"vdup.{dtype}", lanes, "d[l] = a", operands, text, masks=True)


def _least(dtype: str) -> Row:
    """The least number in each lane."""
    lanes, bits = REGISTERS["q"] // BYTES[dtype], 8 * BYTES[dtype]
    text = f"vmov.i{bits} {{d}}, #{1 << (bits - 1)}"
    return Row(f"vmov.least.{dtype}", lanes, f"d[l] = {-1 << (bits - 1)}", formals(d=f"{dtype} q"), text, masks=True)


def zeros(dtype: str) -> Row:
    """Zeros."""
    lanes, text = REGISTERS["q"] // BYTES[dtype], f"vmov.i{8 * BYTES[dtype]} {{d}}, #0"
    return Row(f"vmov.zero.{dtype}", lanes, "d[l] = 0", formals(d=f"{dtype} q"), text, masks=True)


def _moved_on(by: int) -> Row:
    """Bytes of a vector to where those behind lie."""
    operands, text = formals(d="i8 q", a="i8 q"), f"vshlc {{d}}, {{carry}}, #{8 * by}"
    return Row(f"vshlc.{by}", 16 - by, f"d[l + {by}] = a[l]", operands, text, moves_in_place=True)


def _moved_up() -> Row:
    """Three bytes of each word to where the next one lies."""
    operands, by = formals(d="i8 q", a="i8 q"), "{d}, {a}, #8"
    return Row(
        "vsli.8", 12, "d[4 * l + m + 1] = a[4 * l + m]", operands, f"vsli.32 {by}", first=f"vshl.i32 {by}", inner=(3,)
    )


def _added(dtype: str) -> Row:
    """Sums in lanes."""
    lanes, q, kind = REGISTERS["q"] // BYTES[dtype], f"{dtype} q", 8 * BYTES[dtype]
    return Row(
        f"vadd.into.{dtype}", lanes, "d[l] += a[l]", formals(d=q, a=q), f"vadd.i{kind} {{d}}, {{d}}, {{a}}", masks=True
    )


def _lane_products(name: str, kind: str, first: str, total: str = "i32") -> Row:
    """Products of the elements of two vectors, or of every other one, added in lanes of words, or of halves."""
    operands, lanes = formals(d=f"{total} q", a=f"{kind} q", b=f"{kind} q"), REGISTERS["q"] // BYTES[total]
    text = f"{name} {{between}}, {{a}}, {{b}}; vadd.{total} {{d}}, {{d}}, {{between}}"
    begins = f"{name} {{d}}, {{a}}, {{b}}"
    return Row(name, lanes, f"d[l] += a[{first}] * b[{first}]", operands, text, first=begins, masks=True)


def _every(register: str, apart: int, memory: str) -> Row:
    """Elements that lie apart in a vector, to memory side by side."""
    width = BYTES[memory]
    lanes, reach = REGISTERS["q"] // (BYTES[register] * apart), (-STEPS * width, STEPS * width)
    text = f"vstr{LETTERS[width]}.{8 * BYTES[register] * apart} {{a}}, {{d}}"
    operands, name = formals(d=f"{memory} m", a=f"{register} q"), f"vstr{LETTERS[width]}.{register}.{apart}"
    return Row(name, lanes, f"d[l] = a[{apart} * l]", operands, text, reach, width, moves=STEPS * width, masks=True)


def _products(dtype: str) -> Row:
    """The sum of the products of two vectors."""
    lanes, kind = REGISTERS["q"] // BYTES[dtype], f"s{8 * BYTES[dtype]}"
    operands = formals(d="i32 r", a=f"{dtype} q", b=f"{dtype} q")
    begins = f"vmladav.{kind} {{d}}, {{a}}, {{b}}"
    text = f"vmladava.{kind} {{d}}, {{a}}, {{b}}"
    return Row(f"vmladava.{kind}", lanes, "d += a[l] * b[l]", operands, text, first=begins, masks=True)


def _long_products(dtype: str) -> Row:
    """The same in 64 bits."""
    lanes, operands = REGISTERS["q"] // BYTES[dtype], formals(d="i64 p", a=f"{dtype} q", b=f"{dtype} q")
    kind, text = f"s{8 * BYTES[dtype]}", "{d0}, {d1}, {a}, {b}"
    name = f"vmlaldava.{kind}"
    first = f"vmlaldav.{kind} {text}"
    return Row(name, lanes, "d += a[l] * b[l]", operands, f"{name} {text}", first=first, masks=True)


def _joined(dtype: str) -> Iterator[Row]:
    """A number, and those in the lanes of a vector: their sum, the greatest, the least."""
    lanes, bits, operands = REGISTERS["q"] // BYTES[dtype], 8 * BYTES[dtype], formals(d="i32 r", a=f"{dtype} q")
    names = (f"vaddva.s{bits}", f"vmaxv.s{bits}", f"vminv.s{bits}")
    text = " {d}, {a}"
    yield Row(names[0], lanes, "d += a[l]", operands, names[0] + text, first=f"vaddv.s{bits}{text}", masks=True)
    before = {"i8": "low(d)", "i16": "low_half(d)", "i32": "d"}[dtype]
    for name, op in zip(names[1:], ("max", "min"), strict=True):
        yield Row(name, lanes, f"d = {op}({before}, a[l])", operands, name + text, masks=True)


def _near_to(dtype: str) -> Row:
    """A number to memory."""
    letter, width = {"i8": "b", "i16": "h", "i32": ""}[dtype], BYTES[dtype]
    operands, meaning = formals(d=f"{dtype} m", a="i32 r"), "d = a"
    return Row(f"str{letter}.near", 1, meaning, operands, f"str{letter} {{a}}, {{d}}", FAR, width, moves=NEAR)


@ISAS.register
class Mve(Isa):
    """Vectors of 16 bytes: loads and stores that widen and narrow, sums of products, what a RESCALE takes."""

    name, base = "mve", "dsp"
    rows = (
        *whole_words("i8"),
        *whole_words("i16"),
        *(row for both in WIDTHS for row in moved(*both)),
        *(row for both in WIDTHS for row in apart(*both)),
        *spatial_tiles(),
        Row("strd", 2, "d[l] = a[l]", formals(d="i32 m", a="i32 r"), "strd {a0}, {a1}, {d}", PAIR, 4, moves=PAIR[1]),
        Row("ldrd", 2, "d[l] = a[l]", formals(d="i32 r", a="i32 m"), "ldrd {d0}, {d1}, {a}", PAIR, 4, moves=PAIR[1]),
        *(_near_to(dtype) for dtype in INTEGERS),
        Row("ldr.near", 1, "d = a", formals(d="i32 r", a="i32 m"), "ldr {d}, {a}", FAR, 4, moves=NEAR),
        Row("mov.0", 1, "d = 0", formals(d="i32 r"), "mov.w {d}, #0"),
        Row("mov.0.i64", 1, "d = 0", formals(d="i64 p"), "mov.w {d0}, #0; mov.w {d1}, #0"),
        Row("mov", 1, "d = a", formals(d="i32 r", a="i32 r"), "mov {d}, {a}"),
        Row(
            "sqrshrl",
            1,
            "d = sat16(scale64(a, m, s))",
            formals(d="i32 r", a="i64 p", m="i32 r", s="i32 r"),
            "mul {d}, {a1}, {m}; umull {a0}, {a1}, {a0}, {m}; add {a1}, {a1}, {d}; sqrshrl {a0}, {a1}, #64, {s}; "
            "ssat {d}, #16, {a0}",
            spends="a",
        ),
        Row(
            "vmov.4r",
            4,
            "d[l] = a[l]",
            formals(d="i32 q", a="i32 r"),
            "vmov {d}[2], {d}[0], {a0}, {a2}; vmov {d}[3], {d}[1], {a1}, {a3}",
        ),
        Row(
            "vmov.3r",
            3,
            "d[l] = a[l]",
            formals(d="i32 q", a="i32 r"),
            "vmov {d}[2], {d}[0], {a0}, {a2}; vmov.32 {d}[1], {a1}",
        ),
        *(
            Row(
                f"vmov.2r.{place}",
                2,
                f"d[2 * l + {place}] = a[l]" if place else "d[2 * l] = a[l]",
                formals(d="i32 q", a="i32 r"),
                f"vmov {{d}}[{place + 2}], {{d}}[{place}], {{a0}}, {{a1}}",
            )
            for place in (0, 1)
        ),
        Row(
            "vmov.2r",
            2,
            "d[l] = a[l]",
            formals(d="i32 q", a="i32 r"),
            "vmov.32 {d}[0], {a0}; vmov.32 {d}[1], {a1}",
        ),
        *(spread(dtype) for dtype in INTEGERS),
        Row("vmov.i32", 4, "d[l] = a[l]", formals(d="i32 q", a="i32 q"), "vmov {d}, {a}", masks=True),
        *(_products(dtype) for dtype in ("i8", "i16")),
        *(_long_products(dtype) for dtype in ("i16", "i32")),
        *(row for dtype in INTEGERS for row in _joined(dtype)),
        *(_least(dtype) for dtype in ("i8", "i16")),
        *(zeros(dtype) for dtype in INTEGERS),
        _moved_up(),
        *map(_moved_on, (1, 2)),
        *(_added(dtype) for dtype in ("i16", "i32")),
        *(row for dtype in INTEGERS for row in (*plain(dtype), *chosen(dtype, "s"), *shifts(dtype))),
        *(row for wide in ("i32", "i16") for row in (*narrowed(wide), *widened(wide))),
        *spaced(),
        *words(),
        Row(
            "vqadd.i16.r",
            8,
            "d[l] = sat16(a[l] + low_half(b))",
            formals(d="i16 q", a="i16 q", b="i32 r"),
            "vqadd.s16 {d}, {a}, {b}",
            masks=True,
        ),
        Row("vshl.4.i8", 16, "d[l] = low(a[l] * 16)", formals(d="i8 q", a="i8 q"), "vshl.i8 {d}, {a}, #4", masks=True),
        Row(
            "vqrdmlash.i32",
            4,
            "d[l] = round_high_add(d[l], a[l], b)",
            formals(d="i32 q", a="i32 q", b="i32 r"),
            "vqrdmlash.s32 {d}, {a}, {b}",
            masks=True,
        ),
        *(
            Row(
                f"{name}.i32.r",
                4,
                f"d[l] = {op}(d[l], b)",
                formals(d="i32 q", b="i32 r"),
                f"{name}.s32 {{d}}, {{b}}",
                masks=True,
            )
            for name, op in (("vrshl", "round_shift"), ("vqshl", "sat_shl"))
        ),
        *looked_up(),
        _lane_products("vmullb.s16", "i16", "2 * l"),
        _lane_products("vmullt.s16", "i16", "2 * l + 1"),
        _lane_products("vmul.i32", "i32", "l"),
        _lane_products("vmul.i16", "i16", "l", "i16"),
        *(_every(*each) for each in (("i8", 2, "i8"), ("i16", 2, "i16"), ("i8", 4, "i8"), ("i16", 2, "i8"))),
    )

    def on(self, core: Core) -> bool:
        return core.mve
