"""`Let`: a number that a program computes counts elements. What it means, what is legal around it, what it costs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from trees import NAMED_ROWS, outputs, stepped

from tosaic.backends.cores.cortex_m4 import CORE
from tosaic.backends.cortex_m.kernel import Overlap
from tosaic.backends.cortex_m.program.canonical import same_kernel
from tosaic.backends.cortex_m.program.check import check
from tosaic.backends.cortex_m.program.overlap import overlaps
from tosaic.backends.cortex_m.program.text import listing, parse_program
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.cortex_m.program.walks import walks

READ = """
w: i8[40, 16] in const
indices: i32[5] in in
out: i8[5, 16] in out
for y < 5:
  let at < 40 be indices[y]:
    for x < 16:
      out[y, x] = w[at, x]
"""
WRITTEN = """
a: i8[4, 6] in in
i: i32[3] in in
rows: i8[3, 6] in in
out: i8[4, 6] in out
for b < 4:
  for c < 6:
    out[b, c] = a[b, c]
for y < 3:
  let at < 4 be i[y]:
    for x < 6:
      out[at, x] = rows[y, x]
"""
TWICE = WRITTEN.replace("be i[y]", "be sub(mul(i[y], 2), 1)")


FLAT = READ.replace("w: i8[40, 16]", "w: i8[640]").replace("w[at, x]", "w[16*at + x]")


def written(indices: list[int]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Arrays, and what comes of them."""
    a, rows = np.arange(24).reshape(4, 6), np.arange(100, 118).reshape(3, 6)
    expected = a.copy()
    for row, index in zip(rows, indices, strict=True):
        if 0 <= index < 4:
            expected[index] = row
    arrays = {"a": a.astype(np.int8), "i": np.array(indices, np.int32), "rows": rows.astype(np.int8)}
    return arrays, expected.ravel()


@pytest.mark.parametrize("indices", [[2, 0, 3], [1, 1, 1], [-1, 4, 2], [1 << 30, -5, 0]])
def test_the_body_runs_where_the_number_is_in_range(indices):
    arrays, expected = written(indices)
    np.testing.assert_array_equal(outputs(parse_program(WRITTEN), arrays), expected)


def test_a_number_is_computed_from_others():
    arrays, expected = written([1, 3, -1])
    np.testing.assert_array_equal(outputs(parse_program(TWICE), {**arrays, "i": np.array([1, 2, 0])}), expected)


def test_a_number_that_nobody_wrote_is_found():
    text = WRITTEN.replace("for y < 3:\n", "for y < 3:\n  n: i32[] in scratch\n").replace("be i[y]", "be n")
    with pytest.raises(ValueError, match="a number is used that nobody wrote"):
        outputs(parse_program(text), written([0, 1, 2])[0])


@pytest.mark.parametrize("text", [READ, WRITTEN, TWICE], ids=["read", "written", "twice"])
def test_a_listing_parses(text):
    assert listing(parse_program(text)) == text.lstrip()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("split(y, z, 2, early)", "iterations of `y` meet in out"),
        ("distribute(y)", "`y` does not hold several statements"),
        ("reorder(y, x)", "`x` does not stand right inside of `y`"),
        ("fuse(y, x)", "`x` does not stand right inside of `y`"),
        ("hardware_loop(y)", "`y` holds what is no instruction: select some first"),
        ("block(y)", "`y` holds what is no instruction: select some first"),
        ("split(at, z, 3)", "`at` below 4 is not split by 3"),
        ("split(at, z, 2, early)", "`at` below 4 is not split by 2"),
        ("reorder(at, x)", "there is no loop `at`"),
        ("narrowed_order(at, rows, p)", "rows is no constant that loops read"),
        ("narrowed_order(y, rows, p)", "`y` is no number that is computed"),
        ("merge(b, y)", "`b` and `y` iterate over other numbers"),
        ("split(x, at, 2)", "`at` is taken, or no name"),
    ],
)
def test_what_a_number_tells_nobody_keeps_its_order(step, message):
    with pytest.raises(RefusedError) as error:
        stepped(WRITTEN, step)
    assert message in (error.value.what, error.value.why)


def test_rows_are_staged_and_loops_inside_are_free():
    arrays, expected = written([3, 7, 1])
    for steps in ("split(x, z, 2)", "stage(rows, y, r, scratch)", "unroll(y)", "cut(y, 1)\nunroll(x)"):
        program = stepped(WRITTEN, steps)
        check(program, CORE)
        np.testing.assert_array_equal(outputs(program, arrays), expected)


@pytest.mark.parametrize("indices", [[3, 0, 2], [-1, 4, 1], [-3, 1 << 30, 0]])
def test_a_number_is_split(indices):
    arrays, expected = written(indices)
    program = stepped(WRITTEN, "split(at, z, 2)")
    check(program, CORE)
    np.testing.assert_array_equal(outputs(program, arrays), expected)


ORDERS = [
    "split(at, b, 3)\ndivide_dim(w, 0, 3)\nsplit(x, xi, 16)\ndivide_dim(w, 2, 16)\nreorder_dims(w, d0213)\nwords(xi)",
    "narrowed_order(at, w, p)",
    "narrowed_order(at, w, p)\nsplit(p, b, 3)\ndivide_dim(w, 0, 3)\nreorder_dims(w, d021)",
    "unpack(x, 32, 16)",
    "unpack(x, 64, 4)\nsplit(at, b, 2)\ndivide_dim(w, 0, 2)\nreorder_dims(w, d0213)",
    "unpack(x, 128, 16)\nnarrowed_order(at, w, p)\nsplit(p, b, 2)\ndivide_dim(w, 0, 2)\nreorder_dims(w, d0213)",
]


@pytest.mark.parametrize("steps", ORDERS)
def test_rows_of_a_table_are_found_in_every_order(steps):
    rng = np.random.default_rng(0)
    groups = 32 if "32" in steps else 64
    factors = rng.integers(1, 16, (48, 64 // groups)).repeat(groups, 1)
    given: dict[str, np.ndarray] = {"w": (factors * rng.integers(-8, 8, (48, 64))).astype(np.int8)}
    given["indices"] = np.array([0, 47, 17, 17, 5, 46, 31, 32, 8], np.int32)
    program = stepped(NAMED_ROWS, steps)
    check(program, CORE)
    np.testing.assert_array_equal(outputs(program, given), given["w"][given["indices"]].ravel())


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("unpack(x, 32, 16)", "`factors` does not hold for all of w"),
        ("unpack(x, 48, 16)", "a group of 48, or a row, is no whole number of 16 bytes"),
        ("unpack(y, 32, 16)", "`y` does more than to copy"),
        ("split(x, xi, 32)\nunpack(xi, 32, 8)", "`xi` does not go along rows of w"),
        ("split(at, b, 2)\nnarrowed_order(at, w, p)", "`at` does not say what row of w is read"),
    ],
)
def test_a_table_that_lies_otherwise_is_refused(steps, message):
    given = {"w": np.arange(3072).astype(np.int8).reshape(48, 64), "indices": np.zeros(9, np.int32)}
    with pytest.raises(RefusedError) as error:
        outputs(stepped(NAMED_ROWS, steps), given)
    assert message in (error.value.what, error.value.why)


def test_a_copy_of_a_loop_has_numbers_of_its_own():
    program = stepped(WRITTEN, "cut(y, 2)")
    assert listing(program).count("let at < 4") == 1 and listing(program).count("let at_t < 4") == 1


def test_a_constant_is_packed_by_the_number_that_counts_it():
    turned = READ.replace("w: i8[40, 16]", "w: i8[16, 40]").replace("w[at, x]", "w[x, at]")
    packed = stepped(turned, "pack(w)")
    assert listing(packed).splitlines()[0] == "w: i8[40, 16] in const"
    given = {"w": np.arange(640).astype(np.int8).reshape(16, 40), "indices": np.array([3, 39, 0, 7, 7], np.int32)}
    np.testing.assert_array_equal(outputs(packed, given), given["w"].T[given["indices"]].ravel())
    with pytest.raises(RefusedError, match="w lies in that order"):
        stepped(READ, "pack(w)")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at < 40", "at < 41", "w[at, x] lies outside of w[40, 16]"),
        ("be indices[y]", "be indices[y + 1]", "indices[y + 1] lies outside of indices[5]"),
        ("be indices[y]", "be j[y]", "j is used where it does not live"),
        ("at", "scale32", "`scale32` is no name of a loop, or of a buffer"),
    ],
)
def test_what_is_outside_is_refused(old, new, message):
    check(parse_program(READ), CORE)
    with pytest.raises(RefusedError, match=re.escape(message)):
        check(parse_program(READ.replace(old, new)), CORE)


def test_registers_are_not_counted_by_a_number():
    text = READ.replace("for y < 5", "r: i32[40, 16] in r\nfor y < 5").replace("w[at, x]", "r[at, x]")
    with pytest.raises(RefusedError, match=re.escape("a loop counts registers of r: r[at, x]")):
        check(parse_program(text), CORE)


def test_other_numbers_are_other_kernels():
    assert not same_kernel(parse_program(WRITTEN), parse_program(TWICE))
    assert same_kernel(parse_program(WRITTEN), parse_program(WRITTEN.replace("at", "to")))


def test_a_result_lies_over_what_is_read_before_alone():
    assert overlaps(parse_program(WRITTEN)) == (Overlap(0, 0),)
    read_later = WRITTEN.replace("out[at, x] = rows[y, x]", "out[at, x] = a[y, x]")
    assert overlaps(parse_program(read_later)) == ()
    assert overlaps(parse_program(READ.replace("w: i8[40, 16] in const", "w: i8[40, 16] in in"))) == ()
    as_wide_as_indices = READ.replace("16", "4").replace("w: i8[40, 4] in const", "w: i8[40, 4] in in")
    assert overlaps(parse_program(as_wide_as_indices)) == (Overlap(1, 0),)


def test_memory_is_priced_as_if_rows_were_all_over_a_table():
    nest = next(nest for nest in walks(parse_program(READ)) if any(a.place == "params" for a in nest.accesses))
    (table,) = (access for access in nest.accesses if access.place == "params")
    assert table.strides[0] == 8 * 16  # five rows of forty


def test_a_number_that_is_computed_moves_a_window_that_a_loop_counts():
    with pytest.raises(RefusedError, match="`x` ends where out ends"):
        stepped(FLAT, "extend(x, 20)")
