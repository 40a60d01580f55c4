"""Operations in lanes of MVE: each lane of a vector from the same lanes of others, a number, or every other one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tosaic.backends.cortex_m.isa.isa import formals
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS

LOW = {"i8": "low({})", "i16": "low_half({})", "i32": "{}", "f32": "{}"}
"""What lanes of a type take of a number in a general register."""
_HALVES = (("b", "2 * l"), ("t", "2 * l + 1"))
_NARROWER = {"i32": "i16", "i16": "i8"}
_CONDITIONS = ("eq", "gt", "ge")


def lanes_of(dtype: str) -> int:
    """Elements of a vector."""
    return REGISTERS["q"] // BYTES[dtype]


def both(name: str, op: str, dtype: str, mnemonic: str) -> Row:
    """An operation of two vectors."""
    q = f"{dtype} q"
    text = f"{mnemonic} {{d}}, {{a}}, {{b}}"
    return Row(name, lanes_of(dtype), f"d[l] = {op}(a[l], b[l])", formals(d=q, a=q, b=q), text, masks=True)


def number(name: str, op: str, dtype: str, mnemonic: str) -> Row:
    """An operation of a vector and a number."""
    operands = formals(d=f"{dtype} q", a=f"{dtype} q", b=f"{'f32' if dtype == 'f32' else 'i32'} r")
    meaning, text = f"d[l] = {op}(a[l], {LOW[dtype].format('b')})", f"{mnemonic} {{d}}, {{a}}, {{b}}"
    return Row(name, lanes_of(dtype), meaning, operands, text, masks=True)


def one(name: str, meaning: str, dtype: str, text: str, source: str = "", *, alias: bool = False) -> Row:
    """An operation of one vector."""
    operands = formals(d=f"{dtype} q", a=f"{source or dtype} q")
    return Row(name, lanes_of(source or dtype), meaning, operands, text, masks=True, alias=alias)


def plain(dtype: str) -> Iterator[Row]:
    """What all lanes of integers have: sums, products, bounds, bits."""
    bits, low, q = 8 * BYTES[dtype], LOW[dtype].format("b"), f"{dtype} q"
    for name, op in (("vadd", "add"), ("vsub", "sub")):
        yield both(f"{name}.{dtype}", op, dtype, f"{name}.i{bits}")
        yield number(f"{name}.{dtype}.r", op, dtype, f"{name}.i{bits}")
    yield both(f"vmul.{dtype}.alone", "mul", dtype, f"vmul.i{bits}")
    yield number(f"vmul.{dtype}.r", "mul", dtype, f"vmul.i{bits}")
    for op in ("max", "min"):
        yield both(f"v{op}.{dtype}", op, dtype, f"v{op}.s{bits}")
    for name, op in (("vand", "bit_and"), ("vorr", "bit_or"), ("veor", "bit_xor")):
        yield both(f"{name}.{dtype}", op, dtype, name)
    yield one(f"vmvn.{dtype}", "d[l] = bit_not(a[l])", dtype, "vmvn {d}, {a}")
    yield one(f"vneg.{dtype}", "d[l] = sub(0, a[l])", dtype, f"vneg.s{bits} {{d}}, {{a}}")
    yield one(f"vabs.{dtype}", "d[l] = abs(a[l])", dtype, f"vabs.s{bits} {{d}}, {{a}}")
    changed, text = formals(d=q, a=q, b="i32 r"), f"s{bits} {{d}}, {{a}}, {{b}}"
    yield Row(f"vmla.{dtype}.r", lanes_of(dtype), f"d[l] += a[l] * {low}", changed, f"vmla.{text}", masks=True)
    yield Row(f"vmlas.{dtype}", lanes_of(dtype), f"d[l] = d[l] * a[l] + {low}", changed, f"vmlas.{text}", masks=True)


def chosen(dtype: str, kind: str) -> Iterator[Row]:
    """Comparisons, which give 1 or 0 in lanes of integers, and the choice between two vectors by such."""
    q, width = f"{dtype} q", 8 * BYTES[dtype]
    condition = f"i{width} q"
    for relation in _CONDITIONS:
        sign = "i" if kind == "s" and relation == "eq" else kind
        text = (
            f"vmov.i{width} {{d}}, #0\\nvcmp.{sign}{width} {relation}, {{a}}, {{b}}\\nvpst\\nvmovt.i{width} {{d}}, #1"
        )
        operands, meaning = formals(d=condition, a=q, b=q), f"d[l] = {relation}(a[l], b[l])"
        yield Row(f"vcmp.{relation}.{dtype}", lanes_of(dtype), meaning, operands, text, early=True)
    text = f"vcmp.i{width} ne, {{c}}, zr\\nvpsel {{d}}, {{a}}, {{b}}"
    operands = formals(d=q, c=condition, a=q, b=q)
    yield Row(f"vpsel.{dtype}", lanes_of(dtype), "d[l] = select(c[l], a[l], b[l])", operands, text)


def shifts(dtype: str) -> Iterator[Row]:
    """By known amounts: to the right, rounded down or to the nearest, and to the left."""
    bits = 8 * BYTES[dtype]
    at = "" if dtype == "i32" else f"{dtype}."
    for n in range(1, bits):
        yield one(f"vshr.{at}{n}", f"d[l] = asr(a[l], {n})", dtype, f"vshr.s{bits} {{d}}, {{a}}, #{n}")
        yield one(f"vrshr.{at}{n}", f"d[l] = round_asr(a[l], {n})", dtype, f"vrshr.s{bits} {{d}}, {{a}}, #{n}")
        yield one(f"vshl.{at}{n}", f"d[l] = a[l] * {1 << n}", dtype, f"vshl.i{bits} {{d}}, {{a}}, #{n}")
    yield one(f"vshr.{at}{bits}", f"d[l] = asr(a[l], {bits})", dtype, f"vshr.s{bits} {{d}}, {{a}}, #{bits}")
    yield one(f"vrshr.{at}{bits}", f"d[l] = round_asr(a[l], {bits})", dtype, f"vrshr.s{bits} {{d}}, {{a}}, #{bits}")


def widened(wide: str) -> Iterator[Row]:
    """Every other element of half the width: as it is, or shifted to the left."""
    narrow = _NARROWER[wide]
    bits = 8 * BYTES[narrow]
    for letter, place in _HALVES:
        operands = formals(d=f"{wide} q", a=f"{narrow} q")
        name = f"vmovl{letter}.s{bits}"
        yield Row(name, lanes_of(wide), f"d[l] = a[{place}]", operands, f"{name} {{d}}, {{a}}")
        for n in range(1, bits + 1):
            name, text = f"vshll{letter}.s{bits}", f"vshll{letter}.s{bits} {{d}}, {{a}}, #{n}"
            yield Row(f"{name}.{n}", lanes_of(wide), f"d[l] = a[{place}] * {1 << n}", operands, text)
        name, factors = f"vmull{letter}.s{bits}", formals(d=f"{wide} q", a=f"{narrow} q", b=f"{narrow} q")
        text = f"{name} {{d}}, {{a}}, {{b}}"
        yield Row(f"{name}.alone", lanes_of(wide), f"d[l] = a[{place}] * b[{place}]", factors, text)


def narrowed(wide: str) -> Iterator[Row]:
    """Elements of half the width in every other lane: cut off, saturated, or shifted to the right and saturated."""
    narrow = _NARROWER[wide]
    bits, half = 8 * BYTES[wide], 8 * BYTES[narrow]
    for letter, place in _HALVES:
        name, cut = f"vmovn{letter}.i{bits}", LOW[narrow].format("a[l]")
        yield one(name, f"d[{place}] = {cut}", narrow, f"{name} {{d}}, {{a}}", wide, alias=letter == "b")
        name = f"vqmovn{letter}.s{bits}"
        yield one(name, f"d[{place}] = sat{half}(a[l])", narrow, f"{name} {{d}}, {{a}}", wide)
        for n in range(1, half + 1):
            name = f"vqrshrn{letter}.s{bits}"
            meaning = f"d[{place}] = sat{half}(round_asr(a[l], {n}))"
            yield one(f"{name}.{n}", meaning, narrow, f"{name} {{d}}, {{a}}, #{n}", wide)


def spaced() -> Iterator[Row]:
    """Elements that lie apart, side by side with others, or saturated where they lie."""
    text, operands = "vqmovnb.s16 {d}, {a}", formals(d="i8 q", a="i16 q")
    yield Row("vqmovnb.s16.spaced", 4, "d[4 * l] = sat8(a[2 * l])", operands, text, masks=True, spoils=True)
    for wide, narrow in _NARROWER.items():
        bits = 8 * BYTES[wide]
        yield from _halves(bits, narrow, ("2 * l", "2 * l + 1"), f"vmovnt.i{bits} {{d}}, {{a}}")
    yield from _halves(32, "i8", ("4 * l + m", "4 * l + m + 2"), "vsli.32 {d}, {a}, #16", (2,))


def _halves(bits: int, dtype: str, halves: tuple[str, str], to_high: str, inner: tuple[int, ...] = ()) -> Iterator[Row]:
    """The low or the high half of each wider element, which is one narrow element or two, to where a half lies.

    Args:
        bits: of a wider element.
        halves: the elements of a low half, and of a high one.
        to_high: the text of what moves a low half to where a high one lies.
    """
    (low, high), operands = halves, formals(d=f"{dtype} q", a=f"{dtype} q")
    make = partial(Row, lanes=lanes_of(dtype) // 2, formals=operands, masks=not inner, inner=inner)
    end = f"i{bits}.{'pairs' if inner else 'spaced'}"
    yield make(f"vmovnb.{end}", meaning=f"d[{low}] = a[{low}]", text=f"vmovnb.i{bits} {{d}}, {{a}}", alias=True)
    yield make(f"vmovnt.{end}", meaning=f"d[{high}] = a[{low}]", text=to_high)
    yield make(f"vsri.{end}", meaning=f"d[{low}] = a[{high}]", text=f"vsri.{bits} {{d}}, {{a}}, #{bits // 2}")
    yield make(f"vmov.{end}", meaning=f"d[{high}] = a[{high}]", text="vmov {d}, {a}", alias=True, spoils=True)


def words() -> Iterator[Row]:
    """What words alone have: high halves of doubled products, shifts by others, leading zeros."""
    for name, op in (("vqdmulh", "doubled_high"), ("vqrdmulh", "round_doubled_high")):
        yield both(f"{name}.i32", op, "i32", f"{name}.s32")
        yield number(f"{name}.i32.r", op, "i32", f"{name}.s32")
    yield both("vrshl.i32", "round_shift", "i32", "vrshl.s32")
    yield both("vqshl.i32", "sat_shl", "i32", "vqshl.s32")
    yield both("vshl.i32", "shift", "i32", "vshl.s32")
    yield both("vshl.i32.logical", "logical_shift", "i32", "vshl.u32")
    for n in range(1, 32):
        yield one(f"vqshl.{n}", f"d[l] = sat_shl(a[l], {n})", "i32", f"vqshl.s32 {{d}}, {{a}}, #{n}")
    yield one("vclz.i32", "d[l] = clz(a[l])", "i32", "vclz.i32 {d}, {a}")
