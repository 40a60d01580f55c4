"""Products of int16 with columns, by sums of 64 bits, equal the reference model to the bit."""

from __future__ import annotations

import mve_layers
import numpy as np
from board import M4, run_cases
from family_cases import CORTEX_M55

from tosaic.backends.cortex_m.kernels.long_products import LongProducts
from tosaic.backends.cortex_m.task import KernelTask

FAMILY = LongProducts()


def test_sizes_extremes_and_schedules_are_exact(tmp_path):
    """Depths of a part of a vector, of vectors, and of more than those, too deep for sums of 32 bits; rows of any
    number; the extremes of int16, whose products have 31 bits."""
    rng, cases = np.random.default_rng(0), []
    for batch, rows, depth, columns in [
        (4, 2, 8, 40), (2, 1, 512, 8), (1, 4, 300, 5), (1, 3, 3, 17), (2, 6, 16, 4), (1, 5, 1100, 2),
    ]:  # fmt: skip
        layer = mve_layers.matmul_i16(rng, batch, rows, depth, columns, transposed=True)
        cases += [layer.case(FAMILY, schedule) for schedule in layer.space(FAMILY).schedules()]
    for extreme in (-1 << 15, (1 << 15) - 1):
        layer = mve_layers.matmul_i16(rng, 1, 2, 264, 3, transposed=True, least=extreme, most=extreme)
        cases.append(layer.case(FAMILY))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_attention_takes_it_and_layers_share_its_code():
    rng = np.random.default_rng(1)
    layers = [mve_layers.matmul_i16(rng, 4, 2, 8, 512, transposed=True) for _ in range(2)]
    tasks = [KernelTask.of(layer.function, CORTEX_M55) for layer in layers]
    sources = [task.generate(task.space.default()) for task in tasks]
    assert [task.space.default().variant for task in tasks] == ["long_products.columns"] * 2
    assert sources[0].symbol == sources[1].symbol and sources[0].params != sources[1].params
    assert KernelTask.of(layers[0].function, M4.core).space.default().variant.startswith("matmul_i16.")
    assert FAMILY.match(mve_layers.matmul_i16(rng, 1, 2, 8, 16).function) is None
