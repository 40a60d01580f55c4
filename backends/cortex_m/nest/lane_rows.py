"""Instruction rows of lanes: in what form each op of `lanes.Value` leaves its result, and what MVE executes for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import lookup_order
from tosaic.backends.cortex_m.nest.block import Instruction
from tosaic.backends.cortex_m.nest.lanes import Value
from tosaic.backends.cortex_m.nest.turn import MOST_CONSTANTS, Form, LaneRow, Turn
from tosaic.support.errors import BackendError


def _form_plain(turn: Turn, value: Value) -> Form:
    """All operands as they are, in as many bits as the widest."""
    bits = max(v.bits for v in (value, *value.operands))
    return Form(max(turn.lanes, bits), bits)


def _form_wide(turn: Turn, value: Value) -> Form:
    return Form(32, 32)


def _form_sum(turn: Turn, value: Value) -> Form:
    return Form(max(turn.lanes, value.bits), value.bits)


def _emit_sum(turn: Turn, value: Value, part: int) -> str:
    form, (*factors, constant) = turn.form(value), value.numbers
    terms = list(zip(value.operands, factors, strict=True))
    scalars = [(turn.row.scalar(v), f) for v, f in terms if turn.row.is_scalar(v)]
    expressions = [at if f == 1 else f"{at} * {f}" for at, f in scalars]
    expressions += [turn.memory.number(constant)] if constant else []
    added, kind = " + ".join(expressions), f".i{form.valid}"
    vectors = sorted(((v, f) for v, f in terms if not turn.row.is_scalar(v)), key=lambda term: _rank(term[1]))
    if not vectors:
        return turn.duplicate(added, form.valid)
    total, owned = "", False
    for v, factor in vectors:
        mine = turn.row.uses[v] == 1 and not turn.row.is_scalar(v)
        if not total:
            total, owned, added = _first_term(turn, v, factor, part, form, added if mine else "", added)
        elif factor in (1, -1):
            total = turn.new(("vadd" if factor == 1 else "vsub") + kind, "{}, {}", total, turn.fetch(v, part, form))
            owned = True
        else:
            by = turn.general(turn.memory.number(factor))
            if owned:
                turn.change(f"vmla.s{form.valid}", total, "{}, {}", turn.fetch(v, part, form), by)
            else:
                product = turn.new(f"vmul{kind}", "{}, {}", turn.fetch(v, part, form), by)
                total, owned = turn.new(f"vadd{kind}", "{}, {}", product, total), True
    return turn.new(f"vadd{kind}", "{}, {}", total, turn.general(added)) if added else total


def _first_term(
    turn: Turn, v: Value, factor: int, part: int, form: Form, joined: str, added: str
) -> tuple[str, bool, str]:
    """The register of the first term, whether it may be changed, and what is still to be added to it."""
    if factor == 1:
        return turn.fetch(v, part, form), turn.row.uses[v] == 1, added
    power = factor.bit_length() - 1 if factor > 0 and factor.bit_count() == 1 else 0
    half = form.spacing // 2
    if power and turn.form(v).spacing == half == turn.form(v).valid and power <= half:
        register = turn.fetch(v, part // 2, Form(half, half))
        return turn.new(f"vshll{'bt'[part % 2]}.s{half}", f"{{}}, #{power}", register), True, added
    register = turn.fetch(v, part, form)
    if factor != -1 and joined and len(turn.constants) < MOST_CONSTANTS:
        by = turn.duplicate(turn.memory.number(factor), form.valid)
        return turn.change(f"vmlas.s{form.valid}", register, "{}, {}", by, turn.general(joined)), True, ""
    if power:
        return turn.new(f"vshl.i{form.valid}", f"{{}}, #{power}", register), True, added
    if factor == -1:
        return turn.new(f"vneg.s{form.valid}", "{}", register), True, added
    by = turn.general(turn.memory.number(factor))
    return turn.new(f"vmul.i{form.valid}", "{}, {}", register, by), True, added


def _form_mul(turn: Turn, value: Value) -> Form:
    wide = max(v.bits for v in value.operands)
    if _half(turn, value):
        return Form(value.bits, value.bits)
    spacing = max(turn.lanes, wide, value.bits)
    return Form(spacing, max(wide, value.bits))


def _half(turn: Turn, value: Value) -> int:
    """The spacing of operands that VMULL takes, or 0 where VMUL is used."""
    half = value.bits // 2
    fits = half >= turn.lanes and all(v.bits <= half and turn.form(v).spacing <= half for v in value.operands)
    return half if fits else 0


def _emit_mul(turn: Turn, value: Value, part: int) -> str:
    a, b = sorted(value.operands, key=turn.row.is_scalar)
    form = turn.form(value)
    if half := _half(turn, value):
        narrow = Form(half, half)
        factors = [turn.fetch(v, part // 2, narrow) for v in (a, b)]
        return turn.new(f"vmull{'bt'[part % 2]}.s{half}", "{}, {}", *factors)
    return turn.new(f"vmul.i{form.valid}", "{}, {}", turn.fetch(a, part, form), turn.second(b, part, form))


def _form_shift_round(turn: Turn, value: Value) -> Form:
    (a,) = value.operands
    bits = next(bits for bits in (8, 16, 32) if bits >= max(a.bits, min(value.numbers[0], 32)))
    return Form(max(turn.lanes, bits, turn.form(a).spacing), bits)


def _emit_shift_round(turn: Turn, value: Value, part: int, name: str = "vrshr") -> str:
    form = turn.form(value)
    return turn.new(f"{name}.s{form.valid}", f"{{}}, #{value.numbers[0]}", turn.fetch(value.operands[0], part, form))


def _form_narrow(turn: Turn, value: Value) -> Form:
    (a,), (bits,) = value.operands, value.numbers
    spacing = max(turn.lanes, bits)
    has = turn.form(a)
    return has if has.spacing <= spacing and a.bits <= bits else Form(spacing, bits)


def _emit_narrow(turn: Turn, value: Value, part: int) -> str:
    (a,), (bits,) = value.operands, value.numbers
    form = turn.form(value)
    if form == turn.form(a):
        return turn.fetch(a, part, form)
    register, width = _narrowed(turn, a, part, form.spacing)
    for wide in (32, 16):
        if width == wide > bits:
            register, width = turn.new(f"vqmovnb.s{wide}", "{}", register), wide // 2
    return register


def _narrowed(turn: Turn, a: Value, part: int, spacing: int) -> tuple[str, int]:
    """A part of a value in lanes of `spacing`, saturated to the bits that hold it; the shift before is joined."""
    has, wide = turn.form(a), 2 * spacing
    shifts = a.op == "shift_round" and turn.row.uses[a] == 1 and a.numbers[0] <= has.valid // 2
    if has.spacing == spacing:
        if shifts and has.valid > 8:
            register = turn.fetch(a.operands[0], part, has)
            return turn.new(f"vqrshrnb.s{has.valid}", f"{{}}, #{a.numbers[0]}", register), has.valid // 2
        return turn.fetch(a, part, has), has.valid
    name, amount, source, form = "vqmovn", "", a, Form(wide, wide)
    if has == form and shifts:
        name, amount, source = "vqrshrn", f", #{a.numbers[0]}", a.operands[0]
    if has.spacing == wide:
        halves = [turn.fetch(source, 2 * part + i, form) for i in (0, 1)]
    else:
        halves = [_narrowed(turn, a, 2 * part + i, wide)[0] for i in (0, 1)]
    return turn.pack(name, f".s{wide}", amount, halves), spacing


def _emit_high_half(turn: Turn, value: Value, part: int) -> str:
    a, b = value.operands
    if turn.row.is_scalar(a):
        a, b = b, a
    name = "vqrdmulh.s32" if value.numbers[0] else "vqdmulh.s32"
    return turn.new(name, "{}, {}", turn.fetch(a, part, Form(32, 32)), turn.second(b, part, Form(32, 32)))


def _emit_shift_by(turn: Turn, value: Value, part: int) -> str:
    unsigned, rounding, saturating = value.numbers
    a, amount = (turn.fetch(v, part, Form(32, 32)) for v in value.operands)
    name = "vrshl" if rounding else "vqshl" if saturating else "vshl"
    return turn.new(f"{name}.{'u' if unsigned else 's'}32", "{}, {}", a, amount)


def _emit_shift_saturating(turn: Turn, value: Value, part: int) -> str:
    return turn.new("vqshl.s32", f"{{}}, #{value.numbers[0]}", turn.fetch(value.operands[0], part, Form(32, 32)))


def _both(turn: Turn, value: Value, part: int, mnemonic: str, typed: str = "") -> str:
    form = turn.form(value)
    registers = [turn.fetch(v, part, form) for v in value.operands]
    name = f"{mnemonic}.{typed}{form.valid}" if typed else mnemonic
    return turn.new(name, ", ".join("{}" for _ in registers), *registers)


def _form_compare(turn: Turn, value: Value) -> Form:
    bits = max(v.bits for v in value.operands)
    return Form(max(turn.lanes, bits), bits)


def _emit_compare(turn: Turn, value: Value, part: int) -> str:
    form = turn.form(value)
    a, b = (turn.fetch(v, part, form) for v in value.operands)
    condition, kind = ("eq", "gt", "ge")[value.numbers[0]], "i" if value.numbers[0] == 0 else "s"
    result = turn.name()
    text = f"{{{result}}}, #0\\nvcmp.{kind}{form.valid} {condition}, {{{a}}}, {{{b}}}\\nvpst\\n"
    text += f"vmovt.i{form.valid} {{{result}}}, #1"
    turn.code.append(Instruction(f"vmov.i{form.valid}", text, (result,), apart=True))
    return result


def _emit_select(turn: Turn, value: Value, part: int) -> str:
    form = turn.form(value)
    condition, a, b = (turn.fetch(v, part, form) for v in value.operands)
    result = turn.name()
    text = f"ne, {{{condition}}}, zr\\nvpsel {{{result}}}, {{{a}}}, {{{b}}}"
    turn.code.append(Instruction(f"vcmp.i{form.valid}", text, (result,)))
    return result


def _form_table(turn: Turn, value: Value) -> Form:
    return Form(turn.lanes, turn.lanes)


def _emit_table(turn: Turn, value: Value, part: int) -> str:
    (a,), entries, lanes = value.operands, value.data, turn.lanes
    if entries is None:
        raise BackendError("a table has no entries")
    index = turn.fetch(a, part, Form(lanes, lanes))
    at = turn.memory.constant(value, str(lanes == 8), lambda: lookup_order(entries) if lanes == 8 else entries)
    if lanes == 16:
        index = turn.new("vadd.i16", "{}, {}", index, turn.general(turn.memory.number(128)))
    base = turn.standing(value, f"{at} + 128" if lanes == 32 else at)
    return turn.new("vldrb.u8" if lanes == 8 else f"vldrb.s{lanes}", "[{}, {}]", base, index, apart=True)


def _form_lookup(turn: Turn, value: Value) -> Form:
    return Form(max(turn.lanes, 16), max(turn.lanes, 16))


def _emit_lookup(turn: Turn, value: Value, part: int) -> str:
    (segment,), entries, form = value.operands, value.data, turn.form(value)
    if entries is None:
        raise BackendError("a table has no entries")
    at = turn.memory.constant(value, "", lambda: entries.astype(np.int16))
    index, first = turn.fetch(segment, part, form), value.numbers[0]
    if form.spacing == 16:
        key = (segment, part, "unsigned")
        if key not in turn.parts:
            turn.parts[key] = turn.new("vadd.i16", "{}, {}", index, turn.general(turn.memory.number(256)))
        index, first = turn.parts[key], first - 256
    base = turn.standing((value, "base"), f"{at} + {2 * first}")
    kind = "u16" if form.spacing == 16 else "s32"
    return turn.new(f"vldrh.{kind}", "[{}, {}, uxtw #1]", base, index, apart=True)


def _rank(factor: int) -> int:
    """What a sum begins with: a value as it is, then a product, then what is taken away."""
    return 0 if factor == 1 else 2 if factor == -1 else 1


def _plain(mnemonic: str, typed: str = "") -> LaneRow:
    """An instruction on all operands as they are; `typed` stands before the bits of its suffix, if it has one."""
    return LaneRow(_form_plain, partial(_both, mnemonic=mnemonic, typed=typed))


ROWS: Mapping[str, LaneRow] = MappingProxyType(
    {
        "sum": LaneRow(_form_sum, _emit_sum),
        "mul": LaneRow(_form_mul, _emit_mul),
        "shift_round": LaneRow(_form_shift_round, _emit_shift_round),
        "shift": LaneRow(_form_shift_round, partial(_emit_shift_round, name="vshr")),
        "narrow": LaneRow(_form_narrow, _emit_narrow),
        "high_half": LaneRow(_form_wide, _emit_high_half),
        "shift_by": LaneRow(_form_wide, _emit_shift_by),
        "shift_saturating": LaneRow(_form_wide, _emit_shift_saturating),
        "min": _plain("vmin", "s"),
        "max": _plain("vmax", "s"),
        "and": _plain("vand"),
        "or": _plain("vorr"),
        "xor": _plain("veor"),
        "invert": _plain("vmvn"),
        "abs": _plain("vabs", "s"),
        "clz": LaneRow(_form_wide, partial(_both, mnemonic="vclz", typed="i")),
        "compare": LaneRow(_form_compare, _emit_compare),
        "select": LaneRow(_form_plain, _emit_select),
        "table": LaneRow(_form_table, _emit_table),
        "lookup": LaneRow(_form_lookup, _emit_lookup),
    }
)
"""Every op, by name."""
