"""What is legal by dependences and by a core: cases that once printed wrong code somewhere, each refused or exact."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import trees
from trees import arrays_of, body_of, outputs, stepped

from tosaic.backends.cores.cortex_m4 import CORE
from tosaic.backends.cortex_m.program.canonical import same_kernel
from tosaic.backends.cortex_m.program.check import check
from tosaic.backends.cortex_m.program.interpret import interpreted
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.primitives.loops import with_loop
from tosaic.backends.cortex_m.program.schedule import parse_steps, replayed
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core

CORTEX_M3 = Core("cortex-m3", "thumbv7m-none-eabi", (), "soft")


def square(*lines: str) -> str:
    """A program that begins a 9 x 9 buffer `T`, and puts it out behind some lines."""
    begin = ["T: i32[9, 9] in scratch", "for b < 9:", "  for c < 9:", "    T[b, c] = a[b, c]"]
    end = ["for d < 9:", "  for e < 9:", "    out[d, e] = T[d, e]"]
    return "\n".join(["a: i32[9, 9] in in", "out: i32[9, 9] in out", *begin, *lines, *end])


def nest(*body: str) -> str:
    return square("for i < 4:", "  for j < 4:", *(f"    {line}" for line in body))


ADDED = nest("T[i, j + i] += 1", "T[j, i] += a[i, j]")
SHIFTED = nest("T[i, j] = T[i + 1, j + 1]")
UPWARDS = nest("T[j, i] = T[j, i + 1] + a[i, j]")
OVERLAPPING = nest("T[0, 2 * i + j] = a[i, j]")
BOTH_WAYS = nest("T[0, 2 * i + j] = a[i, j]", "T[0, 2 * i - j + 1] = a[j, i]")
GUARDED = nest("if j - 1 >= 0:", "  T[i, j] = a[i, j - 1]", "T[i, j] += 1")
BACKWARDS = nest("T[i, j] = a[i, j]", "T[i, j] += T[i, 3 - j]")
DIAGONAL = nest("T[j, j] = a[i, j]")
LATER = nest("T[i, 2 * j] = a[i, j]", "T[i, 2 * j + 1] += 2")
THIRDS = square("for i < 4:", "  for j < 2:", "    T[0, 2 * i + j] = 1", "  T[0, 2 * i + 1] = 2")
MEETING = square("for i < 4:", "  for j < 2:", "    T[0, 2 * i + j] = 1", "  T[0, 2 * i + 2] = 2")
SIDES = nest("T[i, j] = a[i, j]", "T[i, j + 4] = a[i, j + 1]")
NEXT = square("for i < 4:", "  T[i, 0] = a[i, 0]", "for j < 4:", "  T[j, 1] = T[j + 1, 0]")
FEWER = square("for i < 4:", "  T[i, 0] = a[i, 0]", "for j < 3:", "  T[j, 1] = a[j, 0]")
PAST = square(
    "for i < 4:",
    "  T[i, 0] += 1",
    "T[0, 0] += 2",
    "U: i32[4] in scratch",
    "for k < 4:",
    "  U[k] = 3",
    "for j < 4:",
    "  T[j, 1] = U[j]",
)
BETWEEN = square("for i < 4:", "  T[i, 0] += 1", "T[0, 0] = 2", "for j < 4:", "  T[j, 1] = 3")
SAME = square("for i < 4:", "  T[i, 0] = a[i, 0]", "for j < 4:", "  T[j, 1] = T[j, 0]")

REFUSED = {
    "NEXT: merge(i, j)": "iterations of `i` and of what is behind meet in T",
    "NEXT: merge(j, i)": "`i` is not behind `j`",
    "BETWEEN: merge(i, j)": "`i` does not move past what is between",
    "FEWER: merge(i, j)": "`i` and `j` iterate over other numbers",
    "SHIFTED: reorder(i, j)": "iterations of `i` and `j` meet in T",
    "OVERLAPPING: reorder(i, j)": "iterations of `i` and `j` meet in T",
    "UPWARDS: distribute(i)": "`i` does not hold several statements",
    "BOTH_WAYS: split(i, z, 3, early)": "iterations of `i` meet in T",
    "ADDED: split(i, z, 3, early)": "an iteration of `i` adds to, or reads, what it did not begin of T",
    "GUARDED: split(i, z, 3, early)": "an iteration of `i` adds to, or reads, what it did not begin of T",
    "BACKWARDS: split(i, z, 3, early)": "an iteration of `i` adds to, or reads, what it did not begin of T",
    "BOTH_WAYS: distribute(j)": "iterations of `j` meet in T",
    "MEETING: distribute(i)": "iterations of `i` meet in T",
    "SHIFTED: write_out(i, backward)": "iterations of `i` meet in T",
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_order_that_matters_is_kept(case):
    name, _, steps = case.partition(": ")
    with pytest.raises(RefusedError, match="is not legal") as error:
        replayed(parse_program(globals()[name]), parse_steps(steps))
    assert error.value.why == REFUSED[case]


@pytest.mark.parametrize(
    "case",
    [
        "ADDED: reorder(i, j)",
        "ADDED: distribute(j)",
        "ADDED: write_out(i, backward)",
        "THIRDS: distribute(i)",
        "SAME: merge(i, j)",
        "PAST: merge(i, j)",
        "SIDES: reorder(i, j)",
        "GUARDED: stage(T, j, s, r)",
        "GUARDED: stage(T, i, s, scratch)",
        "BACKWARDS: stage(T, i, s, scratch)",
        "DIAGONAL: stage(T, i, s, scratch)",
        "LATER: stage(T, i, s, scratch)",
        "SHIFTED: stage(T, i, s, scratch)",
    ],
)
def test_an_order_that_does_not_matter_is_free(case):
    name, _, steps = case.partition(": ")
    stepped(globals()[name], steps)


def test_early_iterations_write_what_iterations_before_wrote_and_their_sums_begin_anew():
    text = square("for i < 7:", "  T[i, 0] = 3", "  for k < 2:", "    T[i, 0] += a[i, k]")
    early = "split(i, z, 4, early)"
    stepped(text, early)
    stepped(text, f"{early}\ndistribute(z)")
    with pytest.raises(RefusedError) as error:
        stepped(text, f"{early}\ndistribute(z)\ndistribute(i)")
    assert error.value.why == "iterations of `i` meet in T"


def test_names_are_fresh_over_the_whole_tree():
    program = stepped(trees.SUMS, "cut(n, 2)\ncut(n, 1)\nsplit(n_t, z, 2)\nwrite_out(z)")
    assert all(len(loops) == 1 for loops in program.loops.values())
    assert [name for name in program.loops if name.startswith("k")] == ["k", "k_t_t", "k_t", "k_t_1"]


CHECKED = {
    "COPY: stage(a, y, u, r)": "no instruction reads or writes u[u0] alone",
    "SUMS: stage(a, y, u, r, i32)": "a loop counts registers of u: u[u0]",
    "DOT: select(k, dsp)": "ldr.2h stands outside of a block",
    "APART: stage(a, z, u, scratch); words(u1); reorder_dims(u, d10)": "`u1` copies elements that are no neighbors",
}


@pytest.mark.parametrize("case", CHECKED)
def test_what_no_core_runs_is_refused(case):
    name, _, steps = case.partition(": ")
    with pytest.raises(RefusedError) as error:
        check(stepped(getattr(trees, name), steps.replace("; ", "\n")), CORE)
    assert error.value.what == CHECKED[case]


def test_a_core_without_the_instructions_is_refused():
    program = stepped(trees.DOT, "select(k, dsp)\nblock(k)")
    check(program, CORE)
    with pytest.raises(RefusedError, match=re.escape("a cortex-m3 has no ldr.2h")):
        check(program, CORTEX_M3)


@pytest.mark.parametrize("name", ["t0", "p12", "short", "for", "params", "S__1", "x_", "scale32"])
def test_names_that_c_or_the_printer_takes_are_refused(name):
    program = parse_program(trees.COPY)
    loop = program.loop("x")
    renamed = replace(program, body=with_loop(program, loop, replace(loop, var=name)).body)
    with pytest.raises(RefusedError, match=f"`{name}` is no name of a loop, or of a buffer"):
        check(renamed, CORE)


def test_a_table_in_registers_is_refused():
    text = trees.TABLE.replace("table: i8[256] in const", "table: i8[256] in r")
    with pytest.raises(RefusedError, match="values say what is read of table, which lies in registers"):
        check(parse_program(text), CORE)


def test_a_block_of_other_statements_is_refused():
    program = parse_program(trees.COPY)
    loop = program.loop("x")
    with pytest.raises(RefusedError, match="the block `x` holds what is no instruction"):
        check(with_loop(program, loop, replace(loop, kind="block")), CORE)


NOTHING = ["COPY: merge_dims(out, 0)", "COPY: split(x, z, 4); divide_dim(a, 1, 4)", "COPY: split(y, z, 6)"]


@pytest.mark.parametrize("case", NOTHING)
def test_a_schedule_does_not_end_in_a_step_that_changes_nothing(case):
    name, _, steps = case.partition(": ")
    program, steps = parse_program(getattr(trees, name)), parse_steps(steps.replace("; ", "\n"))
    with pytest.raises(RefusedError, match=re.escape(f"`{steps[-1]}` changes nothing of the kernel")):
        scheduled(program, steps, CORE)
    scheduled(program, (*steps, *parse_steps("unroll(x)")), CORE)


def test_kernels_are_the_same_by_addresses_and_params_not_by_names():
    program = parse_program(trees.SUMS)
    moved = replayed(program, parse_steps("distribute(n)\nreorder(nb, k)"))
    packed = replayed(moved, parse_steps("pack(w)"))
    assert not same_kernel(moved, packed)
    assert same_kernel(packed, replayed(moved, parse_steps("reorder_dims(w, d10)")))
    renamed = parse_program(trees.SUMS.replace("for k", "for kk").replace("y, k]", "y, kk]").replace("n, k]", "n, kk]"))
    assert same_kernel(program, renamed)


@pytest.mark.parametrize(
    ("name", "constant", "most"), [("SCALED", "multiplier", 8), ("SHORT_BEFORE_LONG", "last", 4)], ids=str
)
def test_zeros_up_to_where_the_next_constant_lies_change_no_kernel(name, constant, most):
    program = parse_program(getattr(trees, name))
    within, beyond = (replayed(program, parse_steps(f"lengthen({constant}, 0, {n})")) for n in (most, most + 1))
    assert same_kernel(program, within)
    assert not same_kernel(program, beyond)


def test_accesses_outside_of_a_buffer_are_refused():
    text = trees.COPY.replace("a[y, x]", "a[y, x + 1]")
    with pytest.raises(RefusedError, match=re.escape("a[y, x + 1] lies outside of a[6, 8]")):
        check(parse_program(text), CORE)
    windows = trees.DOT.replace("a: i16[8]", "a: i16[7]")
    program = replayed(parse_program(windows), parse_steps("select(k, dsp)\nblock(k)"))
    with pytest.raises(RefusedError, match=re.escape("ldr.2h reaches outside of a[7]: 0 to 7")):
        check(program, CORE)


def test_words_at_odd_halves_are_not_selected_as_aligned_ones():
    odd = trees.DOT.replace("a[2 * k + x0]", "a[2 * k + x0 + 1]").replace("a: i16[8]", "a: i16[9]")
    assert "ldr.2h.any(x[0], a[2 * k + 1])" in body_of(stepped(odd, "select(k, dsp)"))


def test_conditions_keep_accesses_inside():
    check(parse_program(trees.PADDED), CORE)
    with pytest.raises(RefusedError, match=re.escape("a[k + x + -1] lies outside of a[6]")):
        check(parse_program(trees.PADDED.replace("x + k - 1 >= 0 and ", "")), CORE)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("= a[y, x]", "= mul(a[y, x], 100)", "does not fit out"),
        ("for x < 8", "for x < 7", "nobody wrote all of out"),
        ("= a[y, x]", "= add(out[y, x], 1)", "nobody wrote all of out"),
        ("= a[y, x]", "= sat8(a[y, x - 1])", "nobody wrote all of out"),
    ],
)
def test_the_interpreter_finds_what_has_no_meaning(old, new, message):
    program = parse_program(trees.COPY.replace(old, new))
    with pytest.raises(ValueError, match=message):
        outputs(program, arrays_of(program))


def test_the_interpreter_computes_each_operation():
    text = "\n".join(
        [
            "a: i32[4] in in",
            "out: i32[4, 8] in out",
            "table: i8[8] in const",
            "for x < 4:",
            "  out[x, 0] = sat8(a[x] * 40)",
            "  out[x, 1] = clamp(a[x], -2, 3)",
            "  out[x, 2] = high(a[x] * 65536, 65536 * 2)",
            "  out[x, 3] = scale32(a[x], 3, 1)",
            "  out[x, 4] = asr(a[x], 1)",
            "  out[x, 5] = max(a[x], 1) - 5",
            "  out[x, 6] = sat16(a[x] * 10000)",
            "  out[x, 7] = lookup(table[4], a[x])",
        ]
    )
    a = np.array([-4, -1, 0, 3])
    got = interpreted(parse_program(text), {"a": a, "table": np.arange(8)})["out"]
    want = [
        np.clip(a * 40, -128, 127),
        np.clip(a, -2, 3),
        2 * a,
        (a * 3 + 1) >> 1,
        a >> 1,
        np.maximum(a, 1) - 5,
        np.clip(a * 10000, -32768, 32767),
        a + 4,
    ]
    np.testing.assert_array_equal(got, np.stack(want, axis=1))


def test_deep_values_are_compared_in_a_moment():
    deep = "a[x]"
    for _ in range(40):
        deep = f"add({deep}, 1)"
    text = f"a: i32[4] in in\nout: i32[4] in out\nfor x < 4:\n  out[x] = {deep}\n"
    program = parse_program(text)
    assert same_kernel(program, parse_program(text.replace("x", "y")))
    assert not same_kernel(program, replayed(program, parse_steps("split(x, y, 2)")))


NARROWED = """
a: i32[4] in in
out: i32[4] in out
for x < 4:
  out[x] = {}(a[x]) + 1
"""


@pytest.mark.parametrize(("op", "dtype", "fits"), [("low", "i16", True), ("sat16", "i8", False), ("abs", "f32", False)])
def test_a_value_is_bound_in_a_type_that_holds_it(op, dtype, fits):
    step = f"bind({op}, x, t, scratch, {dtype})"
    if fits:
        stepped(NARROWED.format(op), step)
        return
    with pytest.raises(RefusedError, match=f"`{dtype}` does not hold a `{op}`"):
        stepped(NARROWED.format(op), step)


def test_a_number_is_a_constant_of_its_own_too():
    text = "out: i32[4] in out\nc: i32[] in const\nfor x < 2:\n  out[x] = c\nfor y < 2:\n  out[2 + y] = c\n"
    assert "out[x] = d" in body_of(stepped(text, "apart(c, d, x)"))


def test_a_loop_over_more_statements_than_names_stays_one():
    statements = "".join(f"  out[x, {n}] = {n}\n" for n in range(27))
    program = parse_program(f"out: i32[4, 27] in out\nfor x < 4:\n{statements}")
    with pytest.raises(RefusedError, match="27 statements in `x` are more than loops behind it have names for"):
        replayed(program, parse_steps("distribute(x)"))
    assert len(replayed(program, parse_steps("distribute(x, 1)")).loops) == 2
