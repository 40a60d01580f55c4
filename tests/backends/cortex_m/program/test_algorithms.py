"""Algorithms mean what TOSA says, before and behind the first schedules of their sketches."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from mve_layers import Layer

from tosaic.backends.cores.cortex_m4 import CORE
from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.mve_match import Geometry, number
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of
from tosaic.backends.cortex_m.program import algorithms, matmul_algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.interpret import host_constants, interpreted
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.target import Core

CORTEX_M3 = Core("cortex-m3", "thumbv7m-none-eabi", (), "soft")
LAYERS = {
    "conv2d": lambda rng: mve_layers.conv2d(rng, (1, 5, 6, 4), 4, (3, 3), pad=(1, 1, 1, 1)),
    "conv2d with strides": lambda rng: mve_layers.conv2d(
        rng, (2, 7, 7, 3), 5, (2, 3), stride=(2, 2), pad=(0, 0, 1, 1), dilation=(2, 1), clamp=(-90, 80)
    ),
    "conv2d 1x1": lambda rng: mve_layers.conv2d(rng, (1, 3, 4, 8), 6, (1, 1), table=True),
    "depthwise_conv2d": lambda rng: mve_layers.depthwise(rng, (1, 5, 6, 3), (3, 3), pad=(1, 1, 1, 1)),
    "depthwise_conv2d of multiples": lambda rng: mve_layers.depthwise(
        rng, (1, 7, 5, 2), (3, 3), 2, stride=(2, 2), clamp=(-100, 100), table=True
    ),
    "matmul": lambda rng: mve_layers.matmul(rng, 2, 5, 8, 4, clamp=(-90, 90)),
}


def algorithm(workload: Workload) -> Program:
    """What a workload computes, without a schedule."""
    found = workload.attributes
    epilogue = Epilogue(bool(found["clamped"]), bool(found["table"]))
    match workload.kind:
        case "conv2d":
            return algorithms.conv2d(Geometry.of(found), number(workload, "out_channels"), epilogue)
        case "depthwise_conv2d":
            return algorithms.depthwise(Geometry.of(found), number(workload, "multiples"), epilogue)
    batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
    return matmul_algorithms.matmul(batch, rows, depth, columns, epilogue)


def put_out(program: Program, layer: Layer, workload: Workload) -> np.ndarray:
    inputs = dict(zip("ab", layer.inputs, strict=False))
    constants = host_constants(program, constants_of(workload))
    return interpreted(program, {**inputs, **constants})["out"].ravel()


@pytest.mark.parametrize("name", LAYERS)
def test_a_program_puts_out_what_the_reference_model_does(name):
    layer = LAYERS[name](np.random.default_rng(0))
    family = FAMILIES.find(name.partition(" ")[0])()
    assert isinstance(family, ProgramFamily)
    workload = layer.workload(family)
    (want,) = layer.expected
    np.testing.assert_array_equal(put_out(algorithm(workload), layer, workload), want.ravel())
    for core in (CORE, CORTEX_M3):
        sketch = family.sketch(workload)
        assert sketch is not None
        kernel = of_schedule(sketch, layer.space(family, core).default(), core)
        np.testing.assert_array_equal(put_out(kernel.program, layer, workload), want.ravel())
