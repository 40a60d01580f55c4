"""CONV2D of columns of one channel as programs on the M55: every schedule is exact on the board."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError

FAMILY = Conv2d()


def layer_of(shape=(1, 9, 23, 1), taps: int = 4, **options) -> mve_layers.Layer:
    return mve_layers.conv2d(np.random.default_rng(taps), shape, 1, (taps, 1), **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shifts": (31, 31)},
        {"shifts": (20, 33)},
        {"clamp": (-50, 60)},
        {"clamp": (-50, 60), "table": True},
        {"element": "i16"},
        {"element": "i32"},
        {"shape": (2, 9, 6, 1), "taps": 3, "stride": (2, 1)},
        {"shape": (1, 9, 4, 1), "taps": 2, "dilation": (3, 1), "table": True},
    ],
    ids=str,
)
def test_all_schedules_are_exact(tmp_path, options):
    layer = layer_of(**options)
    (variant,) = layer.space(FAMILY).variants
    assert variant.name == "columns"
    for outcome in run_cases([layer.case(FAMILY, schedule) for schedule in variant.schedules()], tmp_path):
        assert outcome.exact, outcome


def test_what_no_schedule_can_be_is_refused():
    what = FAMILY.vector_sketches(layer_of().workload(FAMILY))["columns"]
    with pytest.raises(RefusedError, match="an iteration has no 2 loads to run ahead"):
        what.cost({"vectors": 1, "ahead": 2})
    few = FAMILY.vector_sketches(layer_of((1, 9, 6, 1)).workload(FAMILY))["columns"]
    with pytest.raises(RefusedError, match="6 pixels have no 2 vectors"):
        few.cost({"vectors": 2, "ahead": 0})


@pytest.mark.parametrize("shape", [(1, 9, 3, 1), (1, 9, 8, 2)], ids=str)
def test_few_pixels_and_several_channels_are_no_columns(shape):
    assert "columns" not in FAMILY.vector_sketches(layer_of(shape).workload(FAMILY))


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    layer = layer_of(shifts=(31, 31))
    (variant,) = layer.space(FAMILY, compared=True).variants
    schedule = variant.first()
    assert schedule is not None
    kernel = of_schedule(FAMILY.vector_sketches(layer.workload(FAMILY))["columns"], schedule, CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    assert_golden_text("program_columns.txt", f"{steps}\n{listing(kernel.program)}\n\n{kernel.text}")
