"""Products as programs on the M55: every schedule is exact on the board, and takes the cycles that it promises."""

from __future__ import annotations

import random

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.program.kernel import cheapest_first, of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.target import Cache, Memory
from tosaic.tuner.space import Schedule, Space

FAMILY = Conv2d()
SUMMED = {
    "tile": "3x2", "tiles": 2, "share": 2, "unroll": 0, "repeats": 4, "finish": 2, "ahead": 2, "finish_ahead": 3,
}  # fmt: skip
RESIDENT = {"held": 2, "factors": "held", "unroll": 2}


def pixels(count: int, depth: int, channels: int, **options) -> mve_layers.Layer:
    """A pointwise convolution of `count` pixels."""
    return mve_layers.conv2d(np.random.default_rng(count), (1, 1, count, depth), channels, (1, 1), **options)


def programs(layer: mve_layers.Layer) -> dict[str, Schedule]:
    """The first schedule of each variant that is a program."""
    workload = layer.workload(FAMILY)
    firsts = {variant.name: variant.first() for variant in layer.space(FAMILY).variants}
    return {n: s for n, s in firsts.items() if s is not None and FAMILY.is_program(workload, s, CORTEX_M55)}


@pytest.mark.parametrize("shifts", [None, (31, 31), (32, 40), (40, 62)])
def test_programs_are_exact(tmp_path, shifts):
    draw, cases = random.Random(0), []
    layers = [pixels(13, 64, 32, shifts=shifts), pixels(6, 16, 20, shifts=shifts), pixels(9, 128, 16, shifts=shifts)]
    for layer in layers:
        sketches = FAMILY.vector_sketches(layer.workload(FAMILY))
        spaces = {variant.name: Space((variant,)) for variant in cheapest_first(sketches, CORTEX_M55, Site())}
        for name, first in programs(layer).items():
            drawn = (spaces[name].sample(draw) for _ in range(3))
            cases += [layer.case(FAMILY, schedule) for schedule in dict.fromkeys((first, *drawn))]
    assert len(cases) > 10
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "changed",
    [
        {"unroll": 2, "repeats": 1},
        {"tile": "1x4", "tiles": 1, "share": 1, "repeats": 1},
        {"tile": "1x4", "tiles": 1, "share": 1, "unroll": 1, "repeats": 1},
        {"tile": "5x1", "tiles": 1, "share": 1, "repeats": 4},
        {"ahead": 0, "finish_ahead": 0, "finish": 4},
        {"ahead": 3, "finish": 1, "finish_ahead": 2},
    ],
    ids=str,
)
def test_each_number_of_a_schedule_is_exact(tmp_path, changed):
    layer = pixels(13, 64, 64)
    case = layer.case(FAMILY, Schedule.of("summed", **{**SUMMED, **changed}))
    (outcome,) = run_cases([case], tmp_path)
    assert outcome.exact, outcome


@pytest.mark.parametrize(
    "changed", [{"held": 0}, {"held": 3, "factors": "read"}, {"held": 4, "factors": "read"}], ids=str
)
@pytest.mark.parametrize("depth", [16, 48])
def test_weights_that_stay_or_are_read_are_exact(tmp_path, depth, changed):
    layer = pixels(11, depth, 12)
    (outcome,) = run_cases([layer.case(FAMILY, Schedule.of("resident_vectors", **{**RESIDENT, **changed}))], tmp_path)
    assert outcome.exact, outcome


def test_other_layers_are_left_to_generators():
    draw = np.random.default_rng(0)
    others = [
        pixels(9, 24, 16),
        pixels(9, 16, 6),
        pixels(9, 16, 16, clamp=(-100, 90)),
        pixels(9, 16, 16, table=True),
        pixels(9, 16, 16, shifts=(20, 31)),
        pixels(9, 16, 16, element="i16"),
        mve_layers.conv2d(draw, (1, 4, 4, 16), 16, (3, 3), pad=(1, 1, 1, 1)),
    ]
    assert [programs(layer) for layer in others] == [{}] * len(others)


def test_the_guess_is_a_program_where_it_promises_fewer_cycles():
    assert pixels(125, 64, 64).space(FAMILY).default().variant == "summed"
    assert pixels(64, 16, 32).space(FAMILY).default().variant == "resident_vectors"
    assert pixels(13, 64, 64).space(FAMILY).default().variant == "image"


def test_weights_that_no_cache_holds_are_waited_for_with_each_tile():
    cache = Cache("dcache", 1 << 15, 4, 32, "data")
    behind = Memory("behind", 0, 1 << 20, bytes_per_cycle=1, latency=64, caches=(cache,), line_fill=100)
    family = Conv2d(site=Site(behind))

    def fills(channels: int) -> float:
        """Times that each line of the weights is filled."""
        knobs = {**SUMMED, "tiles": 1, "share": 1, "repeats": 1}
        workload = pixels(12, 256, channels).workload(FAMILY)
        counts = family.features(workload, Schedule.of("summed", **knobs), CORTEX_M55)
        return (counts["estimate_with_waits"] - counts["estimate"]) / 100 / (256 * channels / 32)

    assert 1 <= fills(64) < 1.1 and 4 <= fills(256) < 4.2


def test_steps_by_hand_make_a_kernel(tmp_path):
    layer = mve_layers.conv2d(np.random.default_rng(7), (1, 4, 4, 8), 4, (3, 3), pad=(1, 1, 1, 1))
    schedule = Schedule.of("steps", steps="compute_at(S, n)\n")
    assert FAMILY.is_program(layer.workload(FAMILY), schedule, CORTEX_M55)
    (outcome,) = run_cases([layer.case(FAMILY, schedule)], tmp_path)
    assert outcome.exact, outcome


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    workload = pixels(10, 16, 8).workload(FAMILY)
    kernel = of_schedule(
        FAMILY.vector_sketches(workload)["resident_vectors"], Schedule.of("resident_vectors", **RESIDENT), CORTEX_M55
    )
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_vectors.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
