"""Products by weights of four bits: every schedule is exact on the board, whatever sizes, groups and types are."""

from __future__ import annotations

import random

import mve_layers
import numpy as np
import pytest
from board import M0, M4, run_cases

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.tuner.space import Schedule

FAMILY = Conv2d()
PLAIN = {"width": 2, "block": 16, "unroll": 0, "epilogue_unroll": 1, "ahead": 0, "epilogue_ahead": 0}


def layer(depth: int, channels: int, group: int = 32, pixels: int = 1, **options) -> mve_layers.Layer:
    """A fully connected layer."""
    rng = np.random.default_rng(depth)
    return mve_layers.conv2d(rng, (1, 1, pixels, depth), channels, (1, 1), group=group, **options)


SIZES = [(64, 32, 32), (172, 19, 32), (96, 16, 64), (300, 21, 128), (70, 6, 96), (33, 1, 64)]
"""Depths that groups divide, or not; whole vectors of results, and others; one channel; one group for a row."""
OPTIONS = [
    {},
    {"shifts": (31, 31)},
    {"shifts": (20, 33)},
    {"clamp": (-100, 90), "table": True},
    {"element": "i16"},
    {"element": "i32"},
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_nibbles_are_exact(tmp_path, sizes):
    cases = []
    for number, options in enumerate(OPTIONS):
        found = layer(*sizes, pixels=1 + number % 3, **options)
        block = sizes[1] if options.get("element") else sizes[1] // 16 * 16 or sizes[1]
        cases.append(found.case(FAMILY, Schedule.of("nibbles", **{**PLAIN, "block": block})))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_biases_that_fit_lie_as_halves(tmp_path):
    """Before they are 16 times as large; with what a zero point adds for few weights they fit, for many they do not."""
    schedule, layers = Schedule.of("nibbles", **PLAIN), [layer(64, 32), layer(512, 32)]
    cases = [found.case(FAMILY, schedule) for found in layers]
    assert ["int16_t *const sixteenth" in case.source.text for case in cases] == [True, False]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_schedules_of_a_space_are_exact(tmp_path):
    draw, cases = random.Random(0), []
    for found in (layer(128, 48), layer(160, 36, 64, 5), layer(512, 64)):
        space = found.space(FAMILY)
        assert [variant.name for variant in space.variants] == ["nibbles"]
        cases += [found.case(FAMILY, s) for s in (space.default(), *(space.sample(draw) for _ in range(4)))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("sizes", [(128, 128), (172, 30), (512, 64, 128)], ids=str)
def test_a_search_is_promised_what_the_tree_tells(sizes):
    workload = (found := layer(*sizes)).workload(FAMILY)
    schedule = found.space(FAMILY, compared=True).default()
    promised = FAMILY.features(workload, schedule, CORTEX_M55)
    kernel = of_schedule(FAMILY.vector_sketches(workload)["nibbles"], schedule, CORTEX_M55)
    assert promised["scratch"] == kernel.scratch
    assert promised["estimate"] == pytest.approx(kernel.cycles, rel=0.3)


@pytest.mark.parametrize("sizes", [(64, 32, 32), (172, 19, 32), (96, 16, 64), (36, 5, 64)], ids=str)
def test_halves_are_exact(tmp_path, sizes):
    draw, cases = random.Random(1), []
    for number, options in enumerate(OPTIONS):
        found = layer(*sizes, pixels=1 + number % 3, **options)
        space = found.space(FAMILY, M4.core)
        assert space.default().variant == "nibbles"
        schedules = dict.fromkeys((space.default(), space.sample(draw)))
        cases += [found.case(FAMILY, schedule, (), M4.core) for schedule in schedules]
    for outcome in run_cases(cases, tmp_path, bench=M4):
        assert outcome.exact, outcome


@pytest.mark.parametrize("bench, depth", [(M4, 70), (M0, 64)], ids=["no whole words", "no halves"])
def test_weights_are_bytes_where_nothing_unpacks_them(tmp_path, bench, depth):
    found = layer(depth, 12)
    case = found.case(FAMILY, core=bench.core)
    assert "nibbles" not in case.name
    (outcome,) = run_cases([case], tmp_path, bench=bench)
    assert outcome.exact, outcome


def test_weights_take_half_a_byte_and_a_factor():
    found = layer(512, 64)
    source = FAMILY.generate(found.workload(FAMILY), found.space(FAMILY, compared=True).default(), CORTEX_M55)
    constants = 64 * (4 + 4 + 4)  # bias, multiplier, shift
    assert 512 * 64 * 17 // 32 + constants <= len(source.params) <= 512 * 64 * 17 // 32 + constants + 64
    assert len(source.params) <= 0.56 * 512 * 64


@pytest.mark.parametrize("depth, group", [(64, 0), (16, 32)])
def test_other_weights_are_bytes(depth, group):
    assert layer(depth, 32, group).space(FAMILY, compared=True).default().variant == "row"


def test_records_of_bytes_are_others():
    of_bytes, of_nibbles = (layer(64, 32, group).workload(FAMILY).key for group in (0, 32))
    assert of_bytes != of_nibbles
