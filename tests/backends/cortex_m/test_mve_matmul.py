"""The generated MATMUL kernels equal the reference model to the bit."""

from __future__ import annotations

import random

import mve_layers
import numpy as np
from board import run_cases

from tosaic.backends.cortex_m.kernels.matmul import Matmul
from tosaic.tuner.space import Schedule

FAMILY = Matmul()


def test_random_sizes_zero_points_and_schedules_are_exact(tmp_path):
    rng, choose = np.random.default_rng(0), random.Random(0)
    cases = []
    for _ in range(16):
        batch, rows, depth, columns = (int(v) for v in rng.integers(1, (4, 14, 50, 40)))
        clamp = (-70, 80) if rng.integers(2) else None
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, clamp=clamp, table=bool(rng.integers(2)))
        cases.append(layer.case(FAMILY))
        cases.append(layer.case(FAMILY, layer.space(FAMILY).sample(choose)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_a_transposed_operand_is_read_where_it_lies(tmp_path):
    """Queries with keys: of a part of a vector, of vectors, of more and less than those, in blocks and turns of any
    number."""
    rng, choose, cases = np.random.default_rng(3), random.Random(0), []
    for batch, rows, depth, columns in [
        (2, 2, 8, 40), (1, 4, 4, 16), (2, 4, 16, 300), (1, 3, 24, 20), (1, 1, 48, 130), (1, 2, 37, 19), (1, 2, 64, 16),
    ]:  # fmt: skip
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, transposed=True)
        assert layer.space(FAMILY).default() == Schedule.of("keys")
        cases.append(layer.case(FAMILY))
    for batch, rows, depth, columns in [(2, 7, 8, 24), (1, 9, 20, 33), (2, 5, 16, 10), (1, 2, 12, 40)]:
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, clamp=(-70, 80), transposed=True)
        cases += [layer.case(FAMILY), layer.case(FAMILY, layer.space(FAMILY).sample(choose))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_zero_points_do_not_change_the_code():
    rng = np.random.default_rng(1)
    sources = [mve_layers.matmul(rng, 2, 8, 16, 24).case(FAMILY).source for _ in range(2)]
    assert sources[0].symbol == sources[1].symbol
    assert sources[0].params != sources[1].params


def test_swapped_operands_are_not_mistaken():
    layer = mve_layers.matmul(np.random.default_rng(2), 1, 8, 8, 8, swap=True)
    assert FAMILY.match(layer.function) is None
