"""Every row of every instruction set does on QEMU what its meaning says, as far as it reaches, alone and in pairs."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
from board import M0, M3, M4, M55, Bench, Case, run_cases

from tosaic.backends.cortex_m.isa.isa import ISAS, formals, rows_of
from tosaic.backends.cortex_m.isa.thumb import Thumb
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.interpret import interpreted
from tosaic.backends.cortex_m.program.kernel import Built
from tosaic.backends.cortex_m.program.print_c import Printer
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import accesses, seq
from tosaic.backends.cortex_m.program.row import Formal, Row
from tosaic.backends.cortex_m.program.touches import LEVELS, changes_target, meaning
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    NUMPY,
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Instr,
    Kind,
    Op,
    Reduce,
    Statement,
)

ITERATIONS = 8
APART_OF = {False: 3, True: 12}
"""Elements from lane to lane, where these may lie apart: of words, or others."""
INNER = (8, 17)
"""The same of lanes of inner levels."""
SHIFTS = {"sat_shl": (0, 31), "round_shift": (-31, 32), "shift": (-31, 32), "logical_shift": (-31, 32)}
"""The amounts that shifts by a vector are tested with."""
SCALES = {"m": (0, 1 << 15), "s": (2, 47)}
"""Multipliers and shifts of sums of 64 bits."""
_LESS = (0, 1, 2, 4, 8, 10, 12, 16, 18, 20, 24, 28, 31)
"""By how many bits operands are narrower than their types, those first that try more."""
ENTRIES = 256
"""Of a table."""
BENCHES = (M0, M3, M4, M55)


def smallest_bench(name: str) -> Bench:
    """The smallest core that has an instruction set."""
    return next(bench for bench in BENCHES if ISAS.find(name)().on(bench.core))


def moved(dtype: str, memory: str, *, load: bool) -> Row:
    """A whole register of a class from or to memory."""
    lanes, kinds = REGISTERS[memory] // BYTES[dtype], (f"{dtype} {memory}", f"{dtype} m")
    operands = formals(d=kinds[not load], a=kinds[load])
    meaning = "d[l] = a[l]" if lanes > 1 else "d = a"
    texts = {
        "r": ("ldr {d}, {a}", "str {a}, {d}", (0, 4095)),
        "p": ("ldrd {d0}, {d1}, {a}", "strd {a0}, {a1}, {d}", (0, 1020)),
        "s": ("vldr {d}, {a}", "vstr {a}, {d}", (0, 1020)),
        "q": ("vldrb.u8 {d}, {a}", "vstrb.8 {a}, {d}", (0, 127)),
    }
    *both, reach = texts[memory]
    return Row(f"test.{dtype}.{memory}", lanes, meaning, operands, both[not load], reach)


def elements(row: Row, formal: Formal) -> int:
    """How many elements of an operand an instruction touches, whole registers."""
    if formal.name == row.gathers:
        return ENTRIES
    what = meaning(row)
    found = [a.index for a in (*accesses(what.value), what.target) if a.buffer == formal.name]
    apart = formal.name == row.apart
    strides = (APART_OF[row.dense] if apart else 1, *_inner(row, apart=apart))
    lanes = {level: Affine.of(level) * stride for level, stride in zip(LEVELS, strides, strict=False)}
    counts = (row.lanes // math.prod(row.inner), *row.inner)
    ends = {level: count - 1 for level, count in zip(LEVELS, counts, strict=False)}
    last = max((index[0].at(lanes).bounds(ends)[1] for index in found if index), default=0)
    unit = 1 if formal.memory == "m" else REGISTERS[formal.memory] // BYTES[formal.dtype]
    return -(-(last + 1) // unit) * unit


class RowProgram:
    """A block that loads the operands of a row, executes it, and stores what it puts out.

    A row of memory stands there three times: the second reads or writes a register behind the first, the third as far
    away as its offset reaches.

    Args:
        kind: of the loop over the iterations.
        walks: whether the row stands there once, and the next iteration goes on where it ends.
    """

    def __init__(self, row: Row, kind: Kind = "block", walks: bool = False) -> None:
        self.row, self.walks, self.arguments = row, walks, list[Buffer]()
        what, parts, targets = meaning(row), list[Statement](), list[Buffer]()
        alone = walks or row.apart or row.gathers or row.together
        several = any(f.memory == "m" for f in row.formals) and not alone
        for time in range(3 if several else 1):
            operands, after = list[Access](), list[Statement]()
            for formal in row.formals:
                written = formal.name == what.target.buffer
                place = self._place(formal, time, written)
                if formal.memory == "m":
                    operands.append(place)
                    continue
                lanes = elements(row, formal)
                register = Buffer(f"{formal.name}_{time}_r", formal.dtype, (lanes,), formal.memory)
                targets.append(register)
                operands.append(Access(register.name, (Affine(),)))
                for lane in range(0, lanes, register.lanes):
                    part = Access(register.name, (Affine.of(lane),))
                    if not written or isinstance(what, Reduce) or changes_target(row) or _leaves_lanes(row):
                        source = _behind(self._place(formal, time, False), lane)
                        parts.append(Instr(moved(formal.dtype, formal.memory, load=True), (part, source)))
                    if written:
                        store = moved(formal.dtype, formal.memory, load=False)
                        after.append(Instr(store, (_behind(place, lane), part)))
            stride = APART_OF[row.dense] if row.apart else 1
            parts += [Instr(row, tuple(operands), stride=stride, inner=_inner(row, apart=bool(row.apart))), *after]
        # Rows of a kind stand side by side, so that they may pair.
        parts.sort(key=lambda s: 0 if _loads(s) else 2 if _stores(s) else 1)
        block = seq(*parts)
        for register in targets:
            block = Alloc(register, block)
        tensors = sorted(self.arguments, key=lambda b: b.memory == "out")
        self.program = Program(tuple(tensors), seq(self._cleared(), For("i", ITERATIONS, block, kind=kind)))

    def _cleared(self) -> Statement:
        (b,) = [b for b in self.arguments if b.memory == "out"]
        clear = Assign(Access(b.name, (Affine.of("y"), Affine.of("x"))), 0)
        return For("y", b.shape[0], For("x", b.shape[1], clear))

    def _place(self, formal: Formal, time: int, written: bool) -> Access:
        """Where an operand of one of the three times lies in its tensor, which is made here."""
        name, size = f"{formal.name}_{'out' if written else 'in'}", elements(self.row, formal)
        reach = (self.row.reach[1] if formal.memory == "m" else 1 << 12) // BYTES[formal.dtype]
        unit = max(size, 4 // BYTES[formal.dtype])
        far = 0 if self.walks else reach // unit * unit
        start = (0, unit, far)[time]
        if all(b.name != name for b in self.arguments):
            shape = (ITERATIONS, far + unit)
            self.arguments.append(Buffer(name, formal.dtype, shape, "out" if written else "in"))
        return Access(name, (Affine.of("i"), Affine.of(start)))


def low_program(row: Row) -> Program:
    """Products that a row of the baseline cores adds up, or of what it loads: near, as far as it reaches, further."""
    i, s = Affine.of("i"), Access("s")
    dtype = next((f.dtype for f in row.formals if f.memory == "m"), "i32")
    far = row.reach[1] // BYTES[dtype]
    places = (0, 1, far, 3 * far, 1) if far else (0, 1)
    load, product = Thumb.rows[0], Thumb.rows[-1]
    parts = list[Statement]()
    for number, place in enumerate(places):
        at = Access("a_in", (i, Affine.of(place)))
        parts += [
            Instr(row if row.reach[1] else load, (Access(f"u{number}"), at)),
            Instr(load, (Access("v"), Access("d_in", (i, Affine.of(number))))),
            Instr(product, (s, Access(f"u{number}"), Access("v"))),
            Instr(product, (s, Access("v"), Access(f"u{number}"))),
        ]
    block = seq(*parts)
    for name in ("v", *(f"u{number}" for number in range(len(places)))):
        block = Alloc(Buffer(name, "i32", (), "r"), block)
    iteration = seq(Assign(s, 0), For("t", 1, block, kind="block"), Assign(Access("out", (i,)), s))
    tensors = (
        Buffer("a_in", dtype, (ITERATIONS, max(places) + 1), "in"),
        Buffer("d_in", "i32", (ITERATIONS, len(places)), "in"),
        Buffer("out", "i32", (ITERATIONS,), "out"),
    )
    return Program(tensors, For("i", ITERATIONS, Alloc(Buffer("s", "i32", (), "h"), iteration)))


def values_of(row: Row, program: Program, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], ...]:
    """Random operands, as large as whatever is computed and stored fits, and the outputs of these."""
    for less in _LESS:
        found = _drawn(row, program, rng, less)
        with suppress(ValueError):
            return found, interpreted(program, found)
    raise ValueError(f"no operands fit {row.name}")


def _drawn(row: Row, program: Program, rng: np.random.Generator, less: int) -> dict[str, np.ndarray]:
    """Random operands, so many bits narrower than their types."""
    what, found = meaning(row), dict[str, np.ndarray]()
    for b in program.arguments:
        if b.memory == "in":
            most = max(1, 1 << (8 * BYTES[b.dtype] - 1) >> less)
            low = -most
            if isinstance(what.value, Op) and what.value.name in SHIFTS and b.name.startswith("b"):
                low, most = SHIFTS[what.value.name]
            if row.spends:
                low, most = SCALES.get(b.name[0], (low, most))
            if row.gathers and b.name.startswith("i_") and b.dtype != "i8":
                low, most = 0, ENTRIES
            found[b.name] = rng.integers(low, most, b.shape).astype(NUMPY[b.dtype])
            if row.name in ("at_least", "at_most", "max_nan", "min_nan"):
                found[b.name][:, ::3] = np.nan
    return found


def _is_in_memory(row: Row) -> bool:
    return any(formal.memory == "m" for formal in row.formals)


def _inner(row: Row, *, apart: bool) -> tuple[int, ...]:
    """Elements between lanes of inner levels."""
    found = INNER[: len(row.inner)] if apart else (1,) * len(row.inner)
    return (*found[:-1], 1) if row.dense else found


def _leaves_lanes(row: Row) -> bool:
    """Whether other lanes of the target stay as they are."""
    target = meaning(row).target
    formal = next(f for f in row.formals if f.name == target.buffer)
    lanes = REGISTERS.get(formal.memory, 0) // BYTES[formal.dtype]
    return bool(target.index) and (target.index[0]["l"] > 1 or row.lanes < lanes) and not row.spoils


def _behind(place: Access, lanes: int) -> Access:
    return Access(place.buffer, (*place.index[:-1], place.index[-1] + lanes))


def _loads(s: Statement) -> bool:
    return isinstance(s, Instr) and s.row.name.startswith("test.") and s.row.formals[1].memory == "m"


def _stores(s: Statement) -> bool:
    return isinstance(s, Instr) and s.row.name.startswith("test.") and s.row.formals[0].memory == "m"


@pytest.mark.parametrize("bench", dict.fromkeys(map(smallest_bench, ISAS.known())), ids=lambda bench: bench.core.name)
def test_every_row_does_what_it_means(bench, tmp_path):
    rng = np.random.default_rng(0)
    rows = [row for name, isa in ISAS.known().items() if smallest_bench(name) is bench for row in isa.rows]
    rows = [row for row in rows if not row.moves_in_place and not row.spoils]
    cases = []
    loops: list[tuple[Kind, bool]] = [("hardware_loop", False), ("hardware_loop", True)]
    kinds: list[tuple[Kind, bool]] = [("block", False), *(loops if bench is M55 else [])]
    tried = [(row, how) for row in rows for how in (kinds if _is_in_memory(row) else kinds[:1])]
    for number, (row, (kind, walks)) in enumerate(tried):
        program = low_program(row) if row.low else RowProgram(row, kind, walks).program
        printer, (inputs, outputs) = Printer(program), values_of(row, program, rng)
        if row.pair:
            assert row.pair.partition(" ")[0] in printer.text
        source = Built(program, (), printer.text, 0, 0, 0).source(f"row_{number}", {})
        cases.append(Case(source, list(inputs.values()), list(outputs.values()), row.name))
    outcomes = run_cases(cases, tmp_path, bench=bench)
    assert [str(outcome) for outcome in outcomes if not outcome.exact] == []


def test_rows_that_move_in_place_leave_anything_in_other_lanes(tmp_path):
    rows = [row for row in rows_of("mve") if row.moves_in_place]
    for number, row in enumerate(rows):
        program = RowProgram(row).program
        inputs, _ = values_of(row, program, np.random.default_rng(number))
        source = Built(program, (), Printer(program).text, 0, 0, 0).source(f"moved_{number}", {})
        shape = next(b.shape for b in program.arguments if b.memory == "out")
        case = Case(source, list(inputs.values()), [np.zeros(shape, np.int8)])
        (outcome,), by = run_cases([case], tmp_path / str(number)), REGISTERS["q"] - row.lanes
        np.testing.assert_array_equal(outcome.outputs[0][:, by:16], inputs["a_in"][:, : row.lanes])


SPOILING = {
    "vqmovnb.s16.spaced": (range(0, 8, 2), range(0, 16, 4)),
    "vmov.i16.spaced": (range(1, 16, 2), range(1, 16, 2)),
    "vmov.i32.spaced": (range(1, 8, 2), range(1, 8, 2)),
    "vmov.i32.pairs": ([i for i in range(16) if i % 4 > 1], [i for i in range(16) if i % 4 > 1]),
}
"""The lanes that rows read and write that leave anything in others."""


def test_rows_that_spoil_lanes_do_in_theirs_what_they_mean(tmp_path):
    rows = {row.name: row for row in rows_of("mve") if row.spoils}
    assert rows.keys() == SPOILING.keys()
    for number, (name, (read, written)) in enumerate(SPOILING.items()):
        program = RowProgram(rows[name]).program
        inputs, out = _drawn(rows[name], program, np.random.default_rng(0), 6), program.arguments[-1]
        source = Built(program, (), Printer(program).text, 0, 0, 0).source(f"spoiled_{number}", {})
        case = Case(source, list(inputs.values()), [np.zeros(out.shape, NUMPY[out.dtype])])
        (outcome,) = run_cases([case], tmp_path / name)
        want = inputs["a_in"][:, [*read]].clip(-128, 127) if name[1] == "q" else inputs["a_in"][:, [*read]]
        np.testing.assert_array_equal(outcome.outputs[0][:, [*written]], want)


def test_a_row_that_means_something_else_is_found(tmp_path):
    rng = np.random.default_rng(0)
    wrong = Row("wrong", 2, "d[l] = a[2 * l + 1]", formals(d="i16 r", a="i8 r"), "sxtb16 {d}, {a}")
    program = RowProgram(wrong).program
    inputs, outputs = values_of(wrong, program, rng)
    source = Built(program, (), Printer(program).text, 0, 0, 0).source("wrong", {})
    case = Case(source, list(inputs.values()), list(outputs.values()))
    (outcome,) = run_cases([case], tmp_path, bench=M4)
    assert not outcome.exact


def test_rows_of_several_lines_that_need_each_other_keep_their_order(tmp_path):
    text = "add {d}, {a}, {a}; add {d}, {d}, {a}"
    thrice = Row("thrice", 1, "d = a + a + a", formals(d="i32 r", a="i32 r"), text)
    load, store = moved("i32", "r", load=True), moved("i32", "r", load=False)
    at = (Affine.of("i"),)
    parts = [
        Instr(load, (Access("u"), Access("a", at))),
        Instr(thrice, (Access("v"), Access("u"))),
        Instr(thrice, (Access("x"), Access("v"))),
        Instr(store, (Access("out", at), Access("x"))),
    ]
    block = seq(*parts)
    for name in "uvx":
        block = Alloc(Buffer(name, "i32", (), "r"), block)
    tensors = (Buffer("a", "i32", (ITERATIONS,), "in"), Buffer("out", "i32", (ITERATIONS,), "out"))
    program = Program(tensors, For("i", ITERATIONS, block, kind="block"))
    a = np.arange(ITERATIONS, dtype=np.int32) - 3
    source = Built(program, (), Printer(program).text, 0, 0, 0).source("thrice", {})
    (outcome,) = run_cases([Case(source, [a], [9 * a])], tmp_path, bench=M3)
    assert outcome.exact


def test_names_of_rows_are_unique():
    for name in ISAS.known():
        names = [row.name for row in rows_of(name)]
        assert len(set(names)) == len(names)
