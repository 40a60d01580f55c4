"""Products as programs on the M55: every schedule is exact on the board, and takes the cycles that it promises."""

from __future__ import annotations

import random
from contextlib import suppress

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden_text
from slow_memory import SLOW_MEMORY

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.program.kernel import Built, of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Cache, Memory
from tosaic.tuner.space import Schedule, Space, Variant

FAMILY = Conv2d()
PIXELS = {
    "tile": "3x2", "together": 6, "share": 2, "block": 64, "repeats": 4, "unroll": 0, "held": 0, "epilogue_unroll": 2,
    "ahead": 2, "epilogue_ahead": 3, "weights": "params", "bias": "results",
}  # fmt: skip
SMALL = {"tile": "2x2", "together": 4, "block": 16, "repeats": 1, "epilogue_unroll": 1, "ahead": 0, "epilogue_ahead": 0}
STATIONARY = {"held": 2, "factors": "held", "unroll": 2}
OPTIONS = [
    {},
    {"shifts": (31, 31)},
    {"shifts": (20, 33)},
    {"clamp": (-100, 90)},
    {"table": True},
    {"clamp": (-100, 90), "table": True},
]


def pixels(count: int, depth: int, channels: int, **options) -> mve_layers.Layer:
    """A pointwise convolution of `count` pixels."""
    return mve_layers.conv2d(np.random.default_rng(count), (1, 1, count, depth), channels, (1, 1), **options)


def first(variant: Variant) -> Schedule:
    """The first schedule of a variant."""
    found = variant.first()
    assert found is not None
    return found


def kernel_of(layer: mve_layers.Layer, variant: str, knobs: dict) -> Built:
    """The schedule of a layer with these numbers."""
    what = FAMILY.vector_sketches(layer.workload(FAMILY))[variant]
    return of_schedule(what, Schedule.of(variant, **knobs), CORTEX_M55)


@pytest.mark.parametrize("shifts", [None, (31, 31)])
def test_earlier_schedules_and_others_of_a_space_are_exact(tmp_path, shifts):
    draw, cases = random.Random(0), []
    for layer in (pixels(13, 64, 32, shifts=shifts), pixels(9, 40, 20, shifts=shifts)):
        workload = layer.workload(FAMILY)
        for variant in layer.space(FAMILY).variants:
            drawn = [first(variant), *(Space((variant,)).sample(draw) for _ in range(2))]
            for schedule in dict.fromkeys(drawn):
                with suppress(RefusedError):
                    FAMILY.trace(workload, schedule, CORTEX_M55)
                    cases.append(layer.case(FAMILY, schedule))
    assert len(cases) > 10
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("sizes", [(9, 24, 40), (7, 5, 6), (5, 33, 35), (4, 16, 17)], ids=str)
def test_any_sizes_bounds_and_types_are_exact(tmp_path, sizes):
    cases = []
    for options in [*OPTIONS, {"element": "i16"}, {"element": "i32"}]:
        channels = sizes[2]
        block = channels if options.get("element") or channels < 16 else channels // 16 * 16
        layer = pixels(*sizes, **options)
        knobs = {**PIXELS, **SMALL, "block": block, "share": 1 + (options in OPTIONS[:2])}
        cases.append(layer.case(FAMILY, Schedule.of("pixels", **knobs)))
        if "weight_stationary" in FAMILY.vector_sketches(layer.workload(FAMILY)):
            cases.append(layer.case(FAMILY, Schedule.of("weight_stationary", held=0, factors="read", unroll=2)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "changed",
    [
        {"unroll": 2, "repeats": 1},
        {"unroll": 1, "repeats": 1, "tile": "1x4", "together": 1, "share": 1},
        {"tile": "1x4", "together": 4, "repeats": 1},
        {"tile": "5x1", "together": 13, "share": 1, "ahead": 1},
        {"tile": "2x3", "together": 7, "block": 32, "repeats": 2, "epilogue_ahead": 0},
        {"tile": "2x2", "together": 13, "held": 1, "ahead": 1},
        {"ahead": 0, "epilogue_ahead": 0, "epilogue_unroll": 4},
        {"ahead": 3, "epilogue_unroll": 1, "epilogue_ahead": 2},
        {"block": 16, "epilogue_unroll": 1, "repeats": 2, "together": 12},
    ],
    ids=str,
)
def test_each_number_of_a_schedule_is_exact(tmp_path, changed):
    knobs = {**PIXELS, **changed}
    cases = [pixels(13, depth, 64).case(FAMILY, Schedule.of("pixels", **knobs)) for depth in (64, 72)]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"share": 3, "epilogue_ahead": 2, "epilogue_unroll": 1},
        {"share": 3, "together": 12, "block": 16, "epilogue_unroll": 1, "repeats": 8, "held": 1},
        {"tile": "2x2", "together": 13, "repeats": 2},
        {"tile": "1x2", "together": 4, "block": 32, "repeats": 1},
    ],
    ids=str,
)
def test_sums_that_begin_with_their_bias_are_exact(tmp_path, changed):
    knobs = {**PIXELS, "bias": "sums", **changed}
    forms = OPTIONS[:3] if knobs["share"] == 2 else OPTIONS[1:2]  # three pixels leave vectors for one factor
    cases = [pixels(13, 64, 64, **options).case(FAMILY, Schedule.of("pixels", **knobs)) for options in forms]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("options", OPTIONS[3:], ids=str)
def test_bounds_and_tables_of_sums_that_begin_with_their_bias_are_exact(tmp_path, options):
    knobs = {**PIXELS, "bias": "sums", "ahead": 0, "epilogue_ahead": 0}
    case = pixels(9, 80, 64, shifts=(31, 31), **options).case(FAMILY, Schedule.of("pixels", **knobs))
    (outcome,) = run_cases([case], tmp_path)
    assert outcome.exact, outcome


def test_results_whose_sums_begin_with_their_bias_take_fewer_cycles():
    knobs = {**PIXELS, "together": 42, "block": 16, "repeats": 8, "epilogue_unroll": 1, "held": 1}
    begun = {"bias": "sums", "share": 3, "epilogue_ahead": 2}
    layer = pixels(126, 64, 64, shifts=(31, 31))
    later, earlier = (kernel_of(layer, "pixels", {**knobs, **each}) for each in ({}, begun))
    assert "ldrd(R[" in listing(earlier.program) and "ldrd(R[" not in listing(later.program)
    assert earlier.cycles < 0.985 * later.cycles


@pytest.mark.parametrize(
    ("depth", "channels", "changed"),
    [(16, 64, {}), (72, 64, {}), (64, 40, {}), (64, 64, {"tile": "3x1"}), (64, 64, {"weights": "scratch"})],
    ids=str,
)
def test_sums_begin_with_their_bias_where_they_are_long_and_whole(depth, channels, changed):
    knobs = {**PIXELS, "block": 16, "epilogue_unroll": 1, "repeats": 1, "bias": "sums", **changed}
    with pytest.raises(RefusedError, match="begin with biases"):
        kernel_of(pixels(13, depth, channels), "pixels", knobs)


@pytest.mark.parametrize(
    "changed", [{"held": 0}, {"held": 3, "factors": "read"}, {"held": 4, "factors": "read"}], ids=str
)
@pytest.mark.parametrize("depth", [16, 48, 3, 30])
def test_weights_that_stay_or_are_read_are_exact(tmp_path, depth, changed):
    layer = pixels(17, depth, 12)
    (outcome,) = run_cases(
        [layer.case(FAMILY, Schedule.of("weight_stationary", **{**STATIONARY, **changed}))], tmp_path
    )
    assert outcome.exact, outcome


@pytest.mark.parametrize(
    ("shape", "stride"), [((1, 7, 9, 24), (2, 2)), ((2, 5, 7, 16), (1, 2)), ((1, 9, 1, 40), (4, 1))], ids=str
)
def test_pixels_that_lie_apart_are_exact(tmp_path, shape, stride):
    layer = mve_layers.conv2d(np.random.default_rng(0), shape, 20, (1, 1), stride=stride)
    cases = [layer.case(FAMILY, first(variant)) for variant in layer.space(FAMILY).variants]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_the_guess_keeps_weights_where_windows_are_shallow():
    assert pixels(125, 64, 64).space(FAMILY, compared=True).default().variant == "pixels"
    assert pixels(64, 16, 32).space(FAMILY, compared=True).default().variant == "weight_stationary"
    assert pixels(64, 8, 32).space(FAMILY, compared=True).default().variant == "weight_stationary"


def test_numbers_of_pixels_go_into_a_row_in_equal_parts():
    knobs = FAMILY.vector_sketches(pixels(125, 64, 64).workload(FAMILY))["pixels"].knobs(CORTEX_M55)
    assert {6, 21, 42, 63} < set(knobs["together"]) and 24 not in knobs["together"]


def test_guesses_look_at_pixels_whose_sums_take_little_memory():
    what = FAMILY.vector_sketches(pixels(125, 64, 64).workload(FAMILY))["pixels"]
    assert isinstance(what, PixelSketch)
    assert what.some_together(what.knobs(CORTEX_M55)["together"], 125, 3, 2, 16) == [3, 6, 21, 63]


def test_pixels_that_are_left_take_no_tile_of_their_own_size():
    whole, left = (kernel_of(pixels(n, 64, 64), "pixels", {**PIXELS, "together": n}) for n in (12, 13))
    assert whole.cycles < left.cycles < whole.cycles * 14 / 12


@pytest.mark.parametrize("sizes", [(125, 64, 64), (49, 40, 24), (12, 8, 32)], ids=str)
def test_a_search_is_promised_what_the_tree_tells(sizes):
    workload = (layer := pixels(*sizes)).workload(FAMILY)
    for variant in layer.space(FAMILY).variants:
        promised = FAMILY.features(workload, first(variant), CORTEX_M55)
        kernel = of_schedule(FAMILY.vector_sketches(workload)[variant.name], first(variant), CORTEX_M55)
        assert promised["scratch"] == kernel.scratch
        assert promised["estimate"] == pytest.approx(kernel.cycles, rel=0.2)


def test_little_working_memory_leaves_a_schedule():
    family = Conv2d(site=Site(most_scratch=600))
    workload = pixels(12, 256, 64).workload(family)
    (variant,) = family.variants(workload, CORTEX_M55)
    assert family.features(workload, first(variant), CORTEX_M55)["scratch"] <= 600


def test_weights_that_no_cache_holds_are_waited_for_with_each_tile():
    cache = Cache("dcache", 1 << 15, 4, 32, "data")
    behind = Memory("behind", 0, 1 << 20, bytes_per_cycle=1, latency=64, caches=(cache,), line_fill=100)
    family = Conv2d(site=Site(behind))

    def fills(channels: int) -> float:
        """Times that each line of the weights is filled."""
        knobs = {**PIXELS, "together": 3, "share": 1, "repeats": 1, "block": channels}
        workload = pixels(12, 256, channels).workload(family)
        counts = family.features(workload, Schedule.of("pixels", **knobs), CORTEX_M55)
        return (counts["estimate_with_waits"] - counts["estimate"]) / 100 / (256 * channels / 32)

    assert 1 <= fills(64) < 1.1 and 4 <= fills(256) < 4.2
    slow = {v.name: first(v) for v in family.variants(pixels(12, 256, 256).workload(family), CORTEX_M55)}
    assert slow["pixels"]["together"] == 12


@pytest.mark.parametrize("sizes", [(13, 24, 64), (7, 40, 36), (5, 33, 30), (4, 8, 48)], ids=str)
def test_copies_of_weights_are_exact(tmp_path, sizes):
    """Of all channels at once, and of blocks of them, whatever is left behind whole vectors."""
    cases = []
    for options in [*OPTIONS, {"element": "i16"}]:
        wide = options.get("element") == "i16"
        channels = sizes[2] if wide or sizes[2] % 16 else 16
        layer, knobs = pixels(*sizes, **options), {**PIXELS, **SMALL, "together": 3, "tile": "2x2", "share": 1}
        for block in {channels, sizes[2] if wide else sizes[2] // 16 * 16}:
            schedule = Schedule.of("pixels", **knobs | {"block": block, "weights": "scratch"})
            cases.append(layer.case(FAMILY, schedule))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_copies_of_rows_that_lie_apart_are_exact(tmp_path):
    layer = mve_layers.conv2d(np.random.default_rng(1), (2, 9, 9, 24), 32, (1, 1), stride=(2, 2))
    knobs = {**PIXELS, **SMALL, "weights": "scratch", "share": 1}
    cases = [
        layer.case(FAMILY, Schedule.of("pixels", **knobs | {"block": block, "together": together}))
        for block in (16, 32)
        for together in (2, 5)
    ]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_fewer_channels_than_a_vector_has_words_are_not_copied():
    with pytest.raises(RefusedError, match="so few factors are not copied"):
        kernel_of(pixels(9, 24, 18), "pixels", {**PIXELS, **SMALL, "weights": "scratch"})


def test_the_guess_copies_weights_out_of_a_slow_memory_where_there_is_room():
    def place(**site) -> str:
        variants = Conv2d(site=Site(**site)).variants(pixels(49, 256, 64).workload(FAMILY), CORTEX_M55)
        return str(first(variants[0])["weights"])

    assert place() == "params"
    assert place(constants=SLOW_MEMORY) == "scratch"
    assert place(constants=SLOW_MEMORY, most_scratch=2048) == "params"


@pytest.mark.parametrize(
    ("variant", "knobs", "factors"),
    [("pixels", {**PIXELS, "together": 16, "repeats": 1}, 10), ("weight_stationary", {**STATIONARY, "unroll": 3}, 12)],
)
def test_what_is_read_again_is_in_a_cache(variant, knobs, factors):
    """Tiles of some pixels, and those that are left, wait once for all weights; so do those of an iteration, and those
    that stay."""
    cached = Cache("data", 32 << 10, 4, 32, "data")
    memory = Memory("flash", 0x6400_0000, 192 << 20, bytes_per_cycle=1, latency=0, caches=(cached,), line_fill=100)
    counts = kernel_of(pixels(16, 32, 64), variant, knobs).priced(Site(constants=memory), CORTEX_M55)
    assert 1 <= counts["params_lines_filled"] / (64 * (32 + factors) / 32) < 1.3


def test_steps_by_hand_make_a_kernel(tmp_path):
    layer = mve_layers.conv2d(np.random.default_rng(7), (1, 4, 4, 8), 4, (3, 3), pad=(1, 1, 1, 1))
    schedule = Schedule.of("steps", steps="compute_at(S, n)\n")
    assert FAMILY.is_program(layer.workload(FAMILY), schedule, CORTEX_M55)
    (outcome,) = run_cases([layer.case(FAMILY, schedule)], tmp_path)
    assert outcome.exact, outcome


@pytest.mark.parametrize(
    ("name", "layer", "variant", "knobs"),
    [
        ("program_vectors.txt", (10, 16, 8), "weight_stationary", STATIONARY),
        ("program_pixels.txt", (4, 24, 20), "pixels", {**PIXELS, **SMALL, "tile": "3x2", "together": 4, "share": 1}),
    ],
)
def test_steps_tree_and_c_of_one_schedule_stay_what_they_are(name, layer, variant, knobs):
    kernel = kernel_of(pixels(*layer), variant, knobs)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text(name, f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
