"""Products of int16 by sums of 64 bits equal the reference model to the bit."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from board import M3, M4, M55, Case, run_cases
from family_cases import CORTEX_M55

from tosaic.backends.cortex_m.kernels.matmul_i16 import MatmulI16
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.cortex_m.task import KernelTask

FAMILY = MatmulI16()


@pytest.mark.parametrize("bench", [M55, M4, M3], ids=["MVE", "DSP", "scalar"])
def test_sizes_extremes_and_schedules_are_exact(tmp_path, bench):
    """Depths of a part of a vector, of vectors, and of more than those, too deep for sums of 32 bits; rows of any
    number; the extremes of int16, whose products have 31 bits."""
    rng, cases = np.random.default_rng(0), []
    for batch, rows, depth, columns, transposed in [
        (4, 2, 8, 40, True), (2, 1, 512, 8, True), (1, 4, 300, 5, True), (1, 3, 3, 17, True), (2, 6, 16, 4, False),
        (1, 5, 1100, 2, False), (1, 2, 23, 3, False),
    ]:  # fmt: skip
        layer = mve_layers.matmul_i16(rng, batch, rows, depth, columns, transposed=transposed)
        schedules = list(layer.space(FAMILY, bench.core).schedules())
        cases += [layer.case(FAMILY, schedule, (), bench.core) for schedule in schedules[:: 1 + len(schedules) // 12]]
    for extreme in (-1 << 15, (1 << 15) - 1):
        layer = mve_layers.matmul_i16(rng, 1, 2, 264, 3, transposed=True, least=extreme, most=extreme)
        cases.append(layer.case(FAMILY, None, (), bench.core))
    for outcome in run_cases(cases, tmp_path, bench=bench):
        assert outcome.exact, outcome


def test_layers_share_its_code():
    rng = np.random.default_rng(1)
    layers = [mve_layers.matmul_i16(rng, 4, 2, 8, 512, transposed=True) for _ in range(2)]
    tasks = [KernelTask.of(layer.function, CORTEX_M55) for layer in layers]
    sources = [task.generate(task.space.default()) for task in tasks]
    assert [task.space.default().variant for task in tasks] == ["matmul_i16.long"] * 2
    assert sources[0].symbol == sources[1].symbol and sources[0].params != sources[1].params


SUMS = """
a: i32[8] in in
b: i32[8] in in
out: i32[1] in out
S: i64[1] in scratch
S[0] = 0
for k < 8:
  S[0] += a[k] * b[k]
out[0] = {result}
"""


def test_products_of_words_have_64_bits(tmp_path):
    """In C, and by an instruction."""
    a, b = np.full(8, 1 << 20, np.int32), np.arange(8, dtype=np.int32) << 18
    expected = np.array([sum(int(x) * int(y) for x, y in zip(a, b, strict=True)) >> 20], np.int32)
    program = parse_program(SUMS.format(result="scale64(S[0], 1, 20)"))
    steps = "place(S, p); stage(a, k, x, r); stage(b, k, y, r); select(k, scalar); block(k)"
    sources = [
        scheduled(program, parse_steps(text.replace("; ", "\n")), M4.core).source("sums", {}) for text in ("", steps)
    ]
    assert "smlal %Q[S__0], %R[S__0]" in sources[1].text
    for outcome in run_cases([Case(each, [a, b], [expected]) for each in sources], tmp_path, bench=M4):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    ("result", "steps", "why"),
    [
        ("max(S[0], 0)", "", "S[0] has 64 bits, of which only `scale64` makes fewer"),
        ("scale64(1, S[0], 20)", "", "S[0] has 64 bits"),
        ("scale64(S[0], 1, 20) + S[0]", "", "S[0] has 64 bits"),
        ("scale64(S[0], 1, 20)", "place(S, r)", "registers `r` hold no i64"),
        ("scale64(S[0], 1, 20)", "stage(S, k, T, p, i32)", "is not staged"),
    ],
)
def test_what_64_bits_do_not_fit_is_refused(result, steps, why):
    with pytest.raises(RefusedError) as found:
        scheduled(parse_program(SUMS.format(result=result)), parse_steps(steps), M4.core)
    assert why in str(found.value)


def test_sums_of_64_bits_live_in_a_block(tmp_path):
    text = """
a: i32[4] in in
b: i32[4] in in
m: i32[1] in in
s: i32[1] in in
out: i16[4] in out
for n < 4:
  S: i64[1] in p
  S[0] = 0
  S[0] += a[n] * b[n]
  out[n] = sat16(scale64(S[0], m[0], s[0]))
"""
    steps = "".join(f"stage({name}, n, {name}r, r)\n" for name in "abms")
    steps += "stage(out, n, o, r, i32)\nselect(n, mve)\nblock(n)"
    a, b = np.array([3, -7, 1 << 20, -(1 << 20)], np.int32), np.array([1 << 20, 1 << 20, 1 << 5, 1 << 12], np.int32)
    expected = np.clip((a.astype(np.int64) * b * 3 + (1 << 19)) >> 20, -(1 << 15), (1 << 15) - 1).astype(np.int16)
    source = scheduled(parse_program(text), parse_steps(steps), CORTEX_M55).source("sums", {})
    given = [a, b, np.array([3], np.int32), np.array([20], np.int32)]
    (outcome,) = run_cases([Case(source, given, [expected])], tmp_path, bench=M55)
    assert outcome.exact, outcome


@pytest.mark.parametrize("name", ["S", "S_low"])
def test_a_hardware_loop_adds_to_a_pair_of_registers_that_lives_outside(name, tmp_path):
    text = f"""
a: i16[64] in in
b: i16[64] in in
out: i32[1] in out
{name}: i64[1] in p
{name}[0] = 0
for k < 64:
  {name}[0] += a[k] * b[k]
out[0] = scale64({name}[0], 1, 20)
"""
    steps = "split(k, kl, 8)\nstage(a, k, x, q)\nstage(b, k, y, q)\nselect(k, mve)\nhardware_loop(k)\nhoist(k, 2)"
    a, b = np.random.default_rng(0).integers(-1 << 15, 1 << 15, (2, 64)).astype(np.int16)
    expected = np.array([int(a.astype(np.int64) @ b) + (1 << 19) >> 20], np.int32)
    source = scheduled(parse_program(text), parse_steps(steps), CORTEX_M55).source("sums", {})
    (outcome,) = run_cases([Case(source, [a, b], [expected])], tmp_path, bench=M55)
    assert outcome.exact, outcome


def test_spent_registers_are_not_read_again():
    text = """
a: i32[1] in in
m: i32[1] in in
out: i16[2] in out
for n < 1:
  S: i64[1] in p
  S[0] = 0
  S[0] += a[0] * a[0]
  out[0] = sat16(scale64(S[0], m[0], m[0]))
  out[1] = sat16(scale64(S[0], m[0], m[0]))
"""
    steps = "stage(a, n, x, r)\nstage(m, n, mr, r)\nstage(out, n, o, r, i32)\nselect(n, mve)\nblock(n)"
    with pytest.raises(RefusedError, match="spends registers that others read"):
        scheduled(parse_program(text), parse_steps(steps), CORTEX_M55)
