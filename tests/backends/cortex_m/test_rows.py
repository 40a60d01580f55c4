"""Products of one pixel on the M55: every schedule is exact on the board, whatever sizes, bounds and types are."""

from __future__ import annotations

import itertools
import random

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.tuner.space import Schedule

FAMILY = Conv2d()
PLAIN = {
    "width": 4, "block": 32, "repeats": 1, "unroll": 0, "held": 2, "epilogue_unroll": 1, "ahead": 1,
    "epilogue_ahead": 3,
}  # fmt: skip


def row(depth: int, channels: int, **options) -> mve_layers.Layer:
    """A fully connected layer on one row."""
    return mve_layers.conv2d(np.random.default_rng(depth), (1, 1, 1, depth), channels, (1, 1), **options)


SIZES = [(64, 32), (40, 16), (7, 5), (37, 30), (48, 1), (16, 11)]
"""Whole vectors, and short ones, of the depth and of the results; fewer than four results, and those behind fours."""
OPTIONS = [
    {},
    {"shifts": (31, 31)},
    {"shifts": (20, 33)},
    {"clamp": (-100, 90)},
    {"table": True},
    {"clamp": (-100, 90), "table": True},
    {"element": "i16"},
    {"element": "i32"},
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_rows_are_exact(tmp_path, sizes):
    cases = []
    for options in OPTIONS:
        block = sizes[1] if options.get("element") else sizes[1] // 16 * 16 or sizes[1]
        knobs = {**PLAIN, "width": 2 - block % 2, "block": block, "ahead": 0, "epilogue_ahead": 0}
        cases.append(row(*sizes, **options).case(FAMILY, Schedule.of("row", **knobs)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_biases_that_fit_lie_as_halves(tmp_path):
    """With what a zero point adds for small weights they fit, for large ones they do not."""
    schedule, layers = Schedule.of("row", **PLAIN), [row(40, 32, shifts=(31, 31)), row(40, 32)]
    cases = [layer.case(FAMILY, schedule) for layer in layers]
    assert ["bias=i16" in layer.workload(FAMILY).key for layer in layers] == [True, False]
    assert ["int16_t *const bias" in case.source.text for case in cases] == [True, False]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("unit", [0, 80_000])
@pytest.mark.parametrize("options", [{}, {"clamp": (-100, 90), "table": True}, {"group": 32}], ids=str)
def test_biases_of_zero_and_factors_of_all_multipliers_are_not_stored(tmp_path, options, unit):
    """In rows of whole vectors of results and of others, in pixels, and with weights of four bits."""
    given = {"biased": False, "unit": unit, "shifts": (31, 31), **options}
    cases = [
        mve_layers.conv2d(np.random.default_rng(1), (1, 1, pixels, 40), 39, (1, 1), **given).case(FAMILY)
        for pixels in (1, 5)
    ]
    for case in cases:
        assert "bias" not in case.source.text
        assert ("int8_t *const units" in case.source.text) is (unit > 0)
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_schedules_of_a_space_are_exact(tmp_path):
    draw, cases = random.Random(0), []
    for layer in (row(96, 48), row(33, 20)):
        space = layer.space(FAMILY)
        assert [variant.name for variant in space.variants] == ["row"]
        cases += [layer.case(FAMILY, s) for s in (space.default(), *(space.sample(draw) for _ in range(3)))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "changed",
    [
        {"width": 1},
        {"width": 5},
        {"width": 6, "unroll": 1, "held": 0},
        {"repeats": 2, "epilogue_unroll": 2, "epilogue_ahead": 0},
        {"held": 4, "ahead": 2},
        {"held": 0, "ahead": 0},
        {"block": 64, "epilogue_unroll": 2},
        {"unroll": 2, "held": 0},
        {"unroll": 4, "held": 0, "width": 2, "ahead": 0},
    ],
    ids=str,
)
def test_each_number_of_a_schedule_is_exact(tmp_path, changed):
    layers = (row(depth, channels) for depth, channels in itertools.product((64, 70), (64, 71)))
    cases = [layer.case(FAMILY, Schedule.of("row", **{**PLAIN, **changed})) for layer in layers]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("sizes", [(128, 128), (40, 30)], ids=str)
def test_a_search_is_promised_what_the_tree_tells(sizes):
    workload = (layer := row(*sizes)).workload(FAMILY)
    schedule = layer.space(FAMILY, compared=True).default()
    promised = FAMILY.features(workload, schedule, CORTEX_M55)
    kernel = of_schedule(FAMILY.vector_sketches(workload)["row"], schedule, CORTEX_M55)
    assert promised["scratch"] == kernel.scratch
    assert promised["estimate"] == pytest.approx(kernel.cycles, rel=0.3)


def test_a_window_of_a_whole_image_is_a_row(tmp_path):
    layer = mve_layers.conv2d(np.random.default_rng(3), (1, 3, 4, 5), 9, (3, 4))
    assert layer.space(FAMILY, compared=True).default().variant == "row"
    (outcome,) = run_cases([layer.case(FAMILY)], tmp_path)
    assert outcome.exact, outcome


def test_other_windows_are_no_rows():
    others = [
        mve_layers.conv2d(np.random.default_rng(0), (1, 1, 2, 16), 16, (1, 1)),
        mve_layers.conv2d(np.random.default_rng(0), (1, 2, 2, 16), 16, (3, 3), pad=(1, 0, 1, 0)),
    ]
    for layer in others:
        assert "row" not in {variant.name for variant in layer.space(FAMILY).variants}


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    workload = row(20, 17, clamp=(-100, 90)).workload(FAMILY)
    schedule = Schedule.of("row", **{**PLAIN, "block": 16, "held": 1, "ahead": 1, "epilogue_ahead": 0})
    kernel = of_schedule(FAMILY.vector_sketches(workload)["row"], schedule, CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_row.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
