"""Vectors from and to memory (MVE)."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.isa.isa import formals
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS

LETTERS = {1: "b", 2: "h", 4: "w"}


STEPS = 127
"""An offset is up to so many elements."""


WIDTHS = (("i32", "i32"), ("i16", "i16"), ("i8", "i8"), ("i16", "i8"), ("i32", "i8"), ("i32", "i16"))
"""Elements of a vector, and how they lie in memory."""


def moved(register: str, memory: str) -> Iterator[Row]:
    """A vector from and to memory, in elements of `memory` that are as wide as its own, or widen to them."""
    lanes, wide, width = REGISTERS["q"] // BYTES[register], BYTES[register], BYTES[memory]
    reach, moves = (-STEPS * width, STEPS * width), STEPS * width
    letter, sign = LETTERS[width], "u" if wide == width else "s"
    q, m = f"{register} q", f"{memory} m"
    load, store = f"vldr{letter}.{sign}{8 * wide} {{d}}, {{a}}", f"vstr{letter}.{8 * wide} {{a}}, {{d}}"
    names = f"vldr{letter}.{register}", f"vstr{letter}.{register}"
    yield Row(names[0], lanes, "d[l] = a[l]", formals(d=q, a=m), load, reach, width, moves=moves, masks=True)
    yield Row(names[1], lanes, "d[l] = a[l]", formals(d=m, a=q), store, reach, width, moves=moves, masks=True)


def apart(register: str, memory: str) -> Iterator[Row]:
    """A vector from and to elements that lie apart."""
    lanes, wide, width = REGISTERS["q"] // BYTES[register], BYTES[register], BYTES[memory]
    letter, sign = LETTERS[width], "u" if wide == width else "s"
    q, m, names = f"{register} q", f"{memory} m", (f"vldr{letter}.{register}.apart", f"vstr{letter}.{register}.apart")
    load, store = (
        f"vldr{letter}.{sign}{8 * wide} {{d}}, [{{a}}, {{o}}]",
        f"vstr{letter}.{8 * wide} {{a}}, [{{d}}, {{o}}]",
    )
    yield Row(names[0], lanes, "d[l] = a[l]", formals(d=q, a=m), load, align=width, masks=True, apart="a")
    yield Row(names[1], lanes, "d[l] = a[l]", formals(d=m, a=q), store, align=width, masks=True, apart="d")


def spatial_tiles() -> Iterator[Row]:
    """Four bytes each from where they lie apart, as words, which may lie at two strides, or as halves; words, or their
    low bytes, to places at two strides; four vectors interleaved."""
    q, m, four = "i8 q", "i8 m", "d[4 * l + m] = a[l + m]"
    for name, align, text in (("w", 4, "vldrw.u32"), ("h", 2, "vldrh.u16")):
        operands, text = formals(d=q, a=m), f"{text} {{d}}, [{{a}}, {{o}}]"
        yield Row(f"vldr{name}.i8.apart", 16, four, operands, text, align=align, apart="a", inner=(4,), dense=True)
    text, pairs = "vldrw.u32 {d}, [{a}, {o}]", "d[8 * l + 4 * m + h] = a[l + m + h]"
    yield Row("vldrw.i8.apart.2", 16, pairs, formals(d=q, a=m), text, align=4, apart="a", inner=(2, 4), dense=True)
    for dtype, inner in (("i8", 4), ("i16", 2)):
        meaning, operands = f"d[l + m] = a[{inner} * l + m]", formals(d=f"{dtype} m", a=f"{dtype} q")
        name, text, lanes = f"vstrw.{dtype}.apart", "vstrw.32 {a}, [{d}, {o}]", 4 * inner
        yield Row(name, lanes, meaning, operands, text, align=4, apart="d", inner=(inner,), dense=True)
    for memory, letter in (("i8", "b"), ("i32", "w")):
        operands, store = formals(d=f"{memory} m", a="i32 q"), f"vstr{letter}.32 {{a}}, [{{d}}, {{o}}]"
        name, meaning, width = f"vstr{letter}.i32.apart.2", "d[l + m] = a[2 * l + m]", BYTES[memory]
        yield Row(name, 4, meaning, operands, store, align=width, masks=True, apart="d", inner=(2,))
    operands, meaning, store = formals(d=m, a=q), "d[l + m] = a[4 * l + 2 * m]", "vstrb.16 {a}, [{d}, {o}]"
    yield Row("vstrb.i8.2.apart.2", 8, meaning, operands, store, apart="d", inner=(2,))
    meaning = "d[l + m + h] = a[8 * l + 4 * m + 2 * h]"
    yield Row("vstrb.i8.2.apart.2.2", 8, meaning, operands, store, apart="d", inner=(2, 2))
    four = "{{{a0}, {a1}, {a2}, {a3}}}"
    lines = "; ".join(f"vst4{part}.8 {four}, {{d}}" for part in range(4))
    operands, meaning = formals(d=m, a=q), "d[4 * l + m] = a[l + 16 * m]"
    yield Row("vst4.i8", 64, meaning, operands, lines, moves=64, together="a", inner=(4,))


def whole_words(dtype: str) -> Iterator[Row]:
    """A vector of narrow elements from and to whole words, which reach farther."""
    lanes, reach = REGISTERS["q"] // BYTES[dtype], (-4 * STEPS, 4 * STEPS)
    q, m = f"{dtype} q", f"{dtype} m"
    load, store = ("vldrw.u32 {d}, {a}", "vstrw.32 {a}, {d}")
    yield Row(f"vldrw.{dtype}", lanes, "d[l] = a[l]", formals(d=q, a=m), load, reach, 4, moves=4 * STEPS)
    yield Row(f"vstrw.{dtype}", lanes, "d[l] = a[l]", formals(d=m, a=q), store, reach, 4, moves=4 * STEPS)


def looked_up() -> Iterator[Row]:
    """Elements of a table that bytes without a sign, or wider numbers, count."""
    bytes_ = formals(d="i8 q", t="i8 m", i="i8 q")
    meaning, text = "d[l] = lookup(t, bit_and(i[l], 255))", "vldrb.u8 {d}, [{t}, {i}]"
    yield Row("vldrb.i8.table", 16, meaning, bytes_, text, masks=True, gathers="t")
    for lanes, dtype, table, text in (
        (4, "i32", "i8", "vldrb.s32 {d}, [{t}, {i}]"),
        (8, "i16", "i8", "vldrb.s16 {d}, [{t}, {i}]"),
        (8, "i16", "i16", "vldrh.u16 {d}, [{t}, {i}, uxtw #1]"),
        (4, "i32", "i16", "vldrh.s32 {d}, [{t}, {i}, uxtw #1]"),
    ):
        operands, letter = formals(d=f"{dtype} q", t=f"{table} m", i=f"{dtype} q"), LETTERS[BYTES[table]]
        name = f"vldr{letter}.{dtype}.table"
        yield Row(name, lanes, "d[l] = lookup(t, i[l])", operands, text, masks=True, gathers="t")
    low = "vmovlb.u8 {d}, {a}; vmovlb.u16 {d}, {d}"
    for source, place in (("i16", "l"), ("i8", "2 * l")):
        operands, meaning = formals(d="i16 q", a=f"{source} q"), f"d[l] = bit_and(a[{place}], 255)"
        yield Row(f"vmovlb.u8.{source}", 8, meaning, operands, "vmovlb.u8 {d}, {a}", masks=True)
    yield Row("vmovlb.i8", 4, "d[l] = bit_and(a[l], 255)", formals(d="i32 q", a="i32 q"), low, masks=True)
