"""Rows that are no whole vectors: a mask keeps instructions from the lanes behind their end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import trees
from board import M55, Case, run_cases

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.backends.cortex_m.program.tree import BYTES, INTEGERS, RefusedError

COPY = """
a: {0}[6, {2}] in in
out: {1}[6, {2}] in out
for y < 6:
  for x < {2}:
    out[y, x] = a[y, x]
"""
TWO = """
a: i8[6, 5] in in
out: i8[6, 5] in out
for y < 6:
  for x < 3:
    out[y, x] = a[y, x]
  for xb < 2:
    out[y, xb + 3] = a[y, xb + 3]
"""

SUM = """
a: i8[6, 5] in in
out: i32[6] in out
for y < 6:
  S: i32[] in scratch
  S = 0
  for x < 5:
    S += a[y, x]
  out[y] = S
"""
STEPS = "place(S, r)\nstage(a, y, u, q)\nselect(y, mve)\nhardware_loop(y)"


def test_loads_and_stores_of_all_widths_leave_what_is_behind_a_row(tmp_path):
    cases, rng = [], np.random.default_rng(0)
    types = [(a, held, out) for a, held, out in itertools.product(INTEGERS, repeat=3) if BYTES[held] >= BYTES[a]]
    for number, (a, held, out) in enumerate((a, h, o) for a, h, o in types if BYTES[a] <= BYTES[o] <= BYTES[h]):
        length = 16 // BYTES[held] - 1
        program = parse_program(COPY.format(a, out, length))
        steps = parse_steps(f"stage(a, y, u, q, {held})\nselect(y, mve)\nhardware_loop(y)")
        data = rng.integers(-100, 100, (6, length)).astype(f"i{BYTES[a]}")
        source = scheduled(program, steps, CORTEX_M55).source(f"mask_{number}", {})
        assert source.text.count("vpst") == 2
        cases.append(Case(source, [data], [data.astype(f"i{BYTES[out]}")], f"{a} {held} {out}"))
    assert len(cases) == 10
    assert [str(outcome) for outcome in run_cases(cases, tmp_path, bench=M55) if not outcome.exact] == []


def test_a_block_has_one_mask():
    program = parse_program(TWO)
    steps = "stage(a, y, u, q, i8, x)\nstage(a, y, v, q, i8, xb)\nselect(y, mve)\nhardware_loop(y)"
    with pytest.raises(RefusedError) as error:
        scheduled(program, parse_steps(steps), CORTEX_M55)
    assert "a block has one mask, not 2" in str(error.value)


def test_a_sum_of_a_short_load_needs_no_mask():
    program = trees.stepped(SUM, STEPS)
    text = scheduled(parse_program(SUM), parse_steps(STEPS), CORTEX_M55).text
    assert "for 5 lanes" in trees.body_of(program)
    assert "vldrbt" in text
    assert "vaddvat" not in text
