"""Depthwise convolutions in lanes as programs: golden steps and C, what refuses a schedule, what a guess does."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden_text
from slow_memory import SLOW_MEMORY

from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.depthwise_i16 import DepthwiseI16
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.vector_depthwise_sketch import FloatDepthwise
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.tuner.space import Schedule, Space

LINED = {
    "hardware_loop": "channels",
    "rows": 1,
    "columns": 1,
    "edges": "apart",
    "once": "weights",
    "weights": "params",
    "ahead": 0,
}


def _layer(shape=(1, 6, 5, 16), kernel=(3, 3), pad=(1, 1, 1, 1), **options):
    return mve_layers.depthwise_i16(np.random.default_rng(0), shape, kernel, pad=pad, **options)


def _built(layer, **knobs):
    what = DepthwiseI16().vector_sketches(layer.workload(DepthwiseI16()))["lined"]
    return of_schedule(what, Schedule.of("lined", **{**LINED, **knobs}), CORE)


def test_steps_tree_and_c_of_one_depthwise_convolution_stay_what_they_are():
    kernel = _built(_layer((1, 1, 8, 16), (1, 3), (0, 0, 0, 0)), columns=2, ahead=2)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_lined.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


def test_steps_tree_and_c_of_one_of_floats_stay_what_they_are():
    what = FloatDepthwise(Geometry(1, 1, 6, 8, (1, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1, 5), True, {})
    kernel = of_schedule(what, Schedule.of("lined", **{**LINED, "columns": 5, "once": "image"}), CORE)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_lined_floats.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


def test_each_weight_is_read_once_for_all_results_of_a_tile():
    """Two windows of three side by side: three weights, and six elements of the image, or the four that differ."""
    layer = _layer((1, 1, 8, 16), (1, 3), (0, 0, 0, 0))
    texts = [_built(layer, columns=2, once=once).text for once in ("weights", "image")]
    assert [text.count("vldrb.s16") for text in texts] == [3, 3]
    constants = 2 * 2  # Of even and odd channels: the bias, and the multiplier.
    assert [text.count("vldrw.u32") - constants for text in texts] == [6, 4]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"rows": 2, "columns": 2}, "4 windows of 9 are too much to write out"),
        ({"hardware_loop": "columns", "columns": 5}, "5 windows of 9 are too much to write out"),
    ],
    ids=str,
)
def test_a_sketch_says_what_it_has_no_steps_for(knobs, message):
    with pytest.raises(RefusedError, match=message):
        _built(_layer(), **knobs)


def test_few_iterations_have_nothing_to_run_ahead_of():
    with pytest.raises(RefusedError, match="channels have no iterations to run ahead of"):
        _built(_layer((1, 4, 4, 8)), ahead=2)


def test_the_guess_copies_weights_out_of_a_slow_memory_where_there_is_room():
    layer = _layer((1, 16, 16, 16))

    def guess(**site):
        return Space(tuple(DepthwiseI16(site=Site(**site)).variants(layer.workload(DepthwiseI16()), CORE))).default()

    assert guess()["weights"] == "params"
    assert guess(constants=SLOW_MEMORY)["weights"] == "scratch"
    assert guess(constants=SLOW_MEMORY, most_scratch=64)["weights"] == "params"


@pytest.mark.parametrize("channels", [1, 3, 6, 8, 21])
def test_any_number_of_channels_is_exact_wherever_weights_lie(tmp_path, channels):
    layer = _layer((2, 3, 4, channels), (1, 3), (0, 0, 1, 1), stride=(2, 1), clamp=(-3000, 5000))
    space = layer.space(DepthwiseI16())
    schedules = [space.default()]
    if channels >= 8:
        schedules += [
            Schedule.of("lined", **{**LINED, "weights": "scratch", "hardware_loop": hardware_loop})
            for hardware_loop in ("channels", "columns")
        ]
    for outcome in run_cases([layer.case(DepthwiseI16(), each) for each in schedules], tmp_path):
        assert outcome.exact, outcome
