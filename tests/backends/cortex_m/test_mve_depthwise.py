"""The generated DEPTHWISE_CONV2D kernels equal the reference model to the bit."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import STEPS, Site
from tosaic.backends.cortex_m.kernels.depthwise import Depthwise
from tosaic.backends.cortex_m.kernels.spatial_tile_sketch import SpatialTileSketch
from tosaic.backends.cortex_m.program.guesses import assignments, cheapest_first
from tosaic.backends.cortex_m.program.kernel import assigned, built
from tosaic.backends.cortex_m.program.schedule import print_steps
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule, Space

FAMILY = Depthwise()
SQUARE = (1, 1, 1, 1)


def legal(layer: mve_layers.Layer, variant: str = "spatial_tiles", **chosen: object) -> Iterator[Schedule]:
    """The schedules of a layer with some choices given, as far as they are legal, in a random order."""
    what = FAMILY.vector_sketches(layer.workload(FAMILY))[variant]
    drawn = list(assignments(what.knobs(CORTEX_M55)))
    random.Random(2).shuffle(drawn)
    for each in drawn:
        if all(each[name] == choice for name, choice in chosen.items()):
            with suppress(RefusedError):
                built(what, assigned(each), CORTEX_M55)
                yield Schedule.of(variant, **each)


def test_random_layers_and_schedules_are_exact(tmp_path):
    rng, choose = np.random.default_rng(0), random.Random(0)
    cases = []
    for _ in range(10):
        window = mve_layers.random_window(rng, largest_kernel=5)
        clamp = (int(rng.integers(-128, 0)), int(rng.integers(0, 128))) if rng.integers(2) else None
        layer = mve_layers.depthwise(
            rng,
            window.pop("shape"),
            window.pop("kernel"),
            int(rng.integers(1, 3)),
            clamp=clamp,
            table=bool(rng.integers(2)),
            **window,
        )
        cases.append(layer.case(FAMILY))
        cases.append(layer.case(FAMILY, layer.space(FAMILY).sample(choose)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("shifts", [(16, 31), (30, 34), (45, 62)])
def test_shifts_over_the_whole_range_are_exact(tmp_path, shifts):
    rng = np.random.default_rng(shifts[0])
    layers = [mve_layers.depthwise(rng, (1, 6, 7, 9), (3, 3), shifts=shifts, pad=SQUARE) for _ in range(3)]
    assert all(outcome.exact for outcome in run_cases([layer.case(FAMILY) for layer in layers], tmp_path))


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 9, 7, 48), (3, 3), {"pad": SQUARE}),
        ((1, 8, 10, 24), (3, 3), {"pad": SQUARE, "clamp": (-100, 90), "shifts": (31, 31)}),
        ((1, 8, 8, 16), (3, 3), {"pad": SQUARE, "table": True}),
        ((1, 9, 9, 20), (3, 3), {"pad": SQUARE, "stride": (2, 2)}),
        ((1, 6, 6, 32), (3, 3), {"pad": (0, 1, 0, 1), "stride": (2, 2)}),
        ((1, 7, 6, 32), (5, 5), {"pad": (2, 2, 2, 2)}),
        ((1, 8, 8, 33), (5, 5), {"pad": (1, 2, 1, 2), "stride": (2, 2)}),
        ((1, 6, 9, 18), (2, 3), {"pad": (0, 0, 1, 0)}),
        ((1, 9, 8, 16), (3, 3), {"pad": (2, 2, 2, 2), "dilation": (2, 2)}),
        ((1, 4, 31, 16), (3, 3), {"pad": SQUARE}),
        ((1, 8, 8, 16), (3, 3), {"pad": SQUARE, "clamp": (-100, 90), "shifts": (28, 36), "table": True}),
        ((1, 7, 6, 32), (5, 5), {"pad": (2, 2, 2, 2), "clamp": (-100, 90), "shifts": (32, 40)}),
        ((1, 12, 12, 17), (4, 4), {"pad": (0, 1, 0, 2), "stride": (3, 2)}),
        ((1, 6, 8, 16), (9, 9), {"pad": (4, 4, 4, 4)}),
        ((1, 9, 12, 16), (10, 3), {"pad": (5, 5, 1, 0), "stride": (1, 2), "multiples": 2}),
    ],
    ids=str,
)
def test_schedules_of_one_layer_are_exact(tmp_path, shape, kernel, options):
    layer = mve_layers.depthwise(np.random.default_rng(1), shape, kernel, **options)
    cases = [layer.case(FAMILY, each) for each in itertools.islice(legal(layer), 3)]
    assert len(cases) >= 2
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3), {"multiples": 8, "pad": (1, 1, 1, 1)}),
        ((3, 3), {"multiples": 5, "pad": (1, 1, 1, 0), "stride": (2, 2), "clamp": (-90, 80), "shifts": (34, 44)}),
        ((3, 2), {"multiples": 4, "table": True}),
        ((4, 4), {"multiples": 3, "pad": (2, 1, 2, 1)}),
    ],
)
def test_several_results_of_one_channel_are_exact(tmp_path, kernel, options):
    layer = mve_layers.depthwise(np.random.default_rng(3), (2, 7, 18, 1), kernel, **options)
    assert layer.space(FAMILY).default().variant == "spatial_tiles"
    cases = [layer.case(FAMILY, schedule) for schedule in itertools.islice(legal(layer), 4)]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 6, 14, 32), (5, 5), {"pad": (2, 2, 2, 2), "shifts": (32, 40)}),
        ((1, 7, 8, 20), (5, 5), {"pad": (2, 2, 1, 3), "shifts": (30, 34)}),
        ((1, 8, 28, 16), (5, 5), {"pad": (1, 2, 1, 2), "stride": (2, 2)}),
        ((1, 6, 8, 16), (6, 3), {"pad": (2, 3, 1, 1)}),
    ],
    ids=str,
)
def test_a_spatial_tile_that_serves_all_windows_of_a_row_is_exact(tmp_path, shape, kernel, options):
    layer = mve_layers.depthwise(np.random.default_rng(5), shape, kernel, **options)
    schedules = list(itertools.islice(legal(layer, tile="2xn"), 3))
    assert schedules
    for outcome in run_cases([layer.case(FAMILY, each) for each in schedules], tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    ("shape", "options", "tile"),
    [
        ((1, 6, 48, 16), {"pad": (0, 1, 0, 1), "stride": (2, 2)}, "1x1"),
        ((2, 6, 40, 24), {"pad": (0, 1, 0, 1), "stride": (2, 2)}, "1x1"),
        ((1, 4, 24, 32), {"pad": SQUARE}, "2x2"),
    ],
    ids=str,
)
def test_a_vector_of_addresses_goes_along_a_long_row(tmp_path, shape, options, tile):
    layer = mve_layers.depthwise(np.random.default_rng(6), shape, (3, 3), shifts=(37, 40), **options)
    whole = legal(layer, tile=tile, part=layer.expected[0].shape[2], block=shape[3])
    found = next(c for c in (layer.case(FAMILY, each) for each in whole) if "%[back_" in c.source.text)
    wrong = re.sub(r"(back_\d+ = -\d+)", r"\1 + 4", found.source.text).replace(found.source.symbol, "wrong")
    planted = replace(found, source=replace(found.source, text=wrong, symbol="wrong"))
    assert [outcome.exact for outcome in run_cases([found, planted], tmp_path)] == [True, False]


def test_a_spatial_tile_that_serves_all_windows_of_a_row_is_read_once():
    layer = mve_layers.depthwise(np.random.default_rng(5), (1, 6, 14, 16), (5, 5), pad=(2, 2, 2, 2), shifts=(32, 40))
    texts = [layer.case(FAMILY, next(legal(layer, tile=tile, part=14))).source.text for tile in ("2xn", "2x1")]
    gathers, moves = ([text.count(what) for text in texts] for what in ("%q[apart__32", "vshlc"))
    assert gathers[0] < 0.6 * gathers[1] and moves[0] < 0.6 * moves[1]


@pytest.mark.parametrize("window", [{"stride": (1, 1)}, {"stride": (2, 2)}, {"multiples": 2}], ids=str)
def test_results_of_32_bits_are_exact(tmp_path, window):
    """The first of two roundings."""
    layer = mve_layers.depthwise(
        np.random.default_rng(4), (2, 9, 7, 20), (3, 3), shifts=(30, 33), pad=SQUARE, element="i32", **window
    )
    space, choose = layer.space(FAMILY), random.Random(3)
    cases = [layer.case(FAMILY), *(layer.case(FAMILY, space.sample(choose)) for _ in range(4))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(("kernel", "tile"), [((3, 3), "2x2"), ((5, 5), "4x1"), ((5, 5), "2x1"), ((3, 3), "1x1")])
def test_blocks_of_channels_take_less_memory(kernel, tile):
    pad = (kernel[0] // 2,) * 4
    layer = mve_layers.depthwise(np.random.default_rng(7), (1, 8, 8, 64), kernel, pad=pad)
    scratch = {
        block: layer.case(FAMILY, next(legal(layer, tile=tile, part=8, packed=1, block=block))).source.scratch_bytes
        for block in (64, 16)
    }
    assert scratch[16] < scratch[64] / 3


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 6, 8, 16), {}),
        ((2, 5, 5, 16), {"shifts": (31, 31)}),
        ((1, 4, 6, 32), {"shifts": (33, 40)}),
        ((1, 4, 11, 16), {"shifts": (28, 36)}),
        ((1, 11, 23, 16), {"stride": (2, 2)}),
    ],
    ids=str,
)
def test_fours_of_results_become_bytes_two_by_two(tmp_path, shape, options):
    """Whatever of the last pair of a row the pair before has computed."""
    layer = mve_layers.depthwise(np.random.default_rng(21), shape, (3, 3), pad=SQUARE, **options)
    cases = [layer.case(FAMILY, each) for each in itertools.islice(legal(layer, paired=1), 6)]
    assert cases
    for case, outcome in zip(cases, run_cases(cases, tmp_path), strict=True):
        assert outcome.exact, outcome
        assert "vstrb.16" in case.source.text
        assert "vstrb.32" not in case.source.text


def test_what_an_iteration_makes_first_may_run_an_iteration_ahead_or_is_refused(tmp_path):
    """Numbers share registers, so what reads one must not move behind what writes the next one there."""
    layer = mve_layers.depthwise(np.random.default_rng(23), (1, 5, 5, 64), (3, 3), shifts=(31, 31), pad=SQUARE)
    workload = layer.workload(FAMILY)
    (schedule, *_) = legal(layer, paired=1, tile="2x2", part=5, packed=1, block=64)
    program = built(
        FAMILY.vector_sketches(workload)["spatial_tiles"], assigned(dict(schedule.knobs)), CORTEX_M55
    ).program
    steps = print_steps(FAMILY.trace(workload, schedule, CORTEX_M55))
    (ahead,) = re.findall(r"pipeline\(n, *\w+\)", steps)
    cases, refused = [], 0
    for name in sorted(b.name for b in program.buffers.values() if b.memory == "q"):
        given = Schedule.of(STEPS, **{STEPS: steps.replace(ahead, f"pipeline(n, {name})")})
        try:
            cases.append(layer.case(FAMILY, given))
        except (RefusedError, BackendError):
            refused += 1
    assert cases and refused
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_pairs_take_fewer_cycles():
    """Elements of a spatial tile move on from row to row, so that weights leave vectors to pairs."""

    def cycles(columns: int, paired: int) -> int:
        rng = np.random.default_rng(22)
        layer = mve_layers.depthwise(rng, (1, 4, columns, 16), (3, 3), shifts=(31, 31), pad=SQUARE)
        what = FAMILY.vector_sketches(layer.workload(FAMILY))["spatial_tiles"]
        knobs = {"tile": "2x2", "part": columns, "packed": 1, "block": 16, "paired": paired}
        return built(what, assigned(knobs), CORTEX_M55).cycles

    assert cycles(24, 1) < 0.97 * cycles(24, 0)
    assert cycles(5, 1) < cycles(5, 0)


@pytest.mark.parametrize(("channels", "found"), [(128, "_from_1024"), (16, "+w")])
def test_gathers_of_a_tile_begin_at_one_pointer_or_find_their_addresses_in_a_vector(channels, found):
    """Windows two columns apart in strips of four rows: 1,024 and 128 bytes."""
    size, pad = (1, 8, 8, channels), (0, 1, 0, 1)
    layer = mve_layers.depthwise(np.random.default_rng(11), size, (3, 3), stride=(2, 2), pad=pad)
    what = FAMILY.vector_sketches(layer.workload(FAMILY))["spatial_tiles"]
    kernel = built(what, assigned({"tile": "1x1", "part": 4, "packed": 1, "block": channels, "paired": 0}), CORTEX_M55)
    assert found in kernel.text
    assert kernel.text.count("vldrw.u32 q") > kernel.text.count("addw %[p")


def test_rows_that_no_window_meets_are_not_read():
    layer = mve_layers.depthwise(np.random.default_rng(11), (1, 8, 8, 16), (3, 3), stride=(2, 2), pad=(0, 1, 0, 1))
    (schedule,) = legal(layer, tile="1x1", part=4, packed=1, paired=0)
    text = FAMILY.generate(layer.workload(FAMILY), schedule, CORTEX_M55).text
    copies = text[: text.index("vst43.8")].rpartition("1:")[2]
    assert copies.count("vldrw.u32") == 3


@pytest.mark.parametrize(
    ("kernel", "options", "knobs", "message"),
    [
        ((3, 3), {}, {"tile": "2x1"}, "do not move by"),
        ((5, 5), {}, {"tile": "2x2"}, "are no spatial tile"),
        ((3, 3), {"stride": (2, 2), "pad": (0, 1, 0, 1)}, {"tile": "2x2"}, "are no spatial tile"),
        ((3, 3), {"stride": (2, 2), "pad": (0, 1, 0, 1)}, {"tile": "2x1"}, "strips of 5 rows"),
        ((3, 3), {}, {"part": 1}, "1 results in 8 rows are no tiles of 2 by 2"),
    ],
)
def test_what_is_no_spatial_tile_is_refused(kernel, options, knobs, message):
    options = {"pad": (kernel[0] // 2,) * 4, **options}
    layer = mve_layers.depthwise(np.random.default_rng(12), (1, 8, 8, 16), kernel, **options)
    what = FAMILY.vector_sketches(layer.workload(FAMILY))["spatial_tiles"]
    assert isinstance(what, SpatialTileSketch)
    first = {name: choices[0] for name, choices in what.knobs(CORTEX_M55).items()}
    with pytest.raises(RefusedError, match=message):
        what.numbers({**first, **knobs})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["spatial_tiles", "lined", "program"]),
        ({"dilation": (2, 2)}, ["spatial_tiles", "lined", "program"]),
        ({"dilation": (6, 6)}, ["lined", "program"]),
        ({"multiples": 2}, ["spatial_tiles", "program"]),
        ({"multiples": 2, "dilation": (6, 6)}, ["program"]),
    ],
    ids=str,
)
def test_windows_that_fit_no_spatial_tiles_have_other_sketches(options, names):
    layer = mve_layers.depthwise(np.random.default_rng(5), (1, 13, 13, 16), (3, 3), **options)
    assert list(FAMILY.vector_sketches(layer.workload(FAMILY))) == names


def test_little_memory_holds_spatial_tiles_of_few_channels_or_nothing():
    layer = mve_layers.depthwise(np.random.default_rng(17), (1, 10, 112, 32), (3, 3), pad=(0, 0, 1, 1))

    def blocks(most: int) -> list[object]:
        variants = Depthwise(site=Site(most_scratch=most)).variants(layer.workload(FAMILY), CORTEX_M55)
        return [(each.name, each.knobs["block"][0]) for each in variants]

    assert [blocks(most) for most in (1 << 14, 1 << 13, 1 << 12)] == [
        [("spatial_tiles", 32)],
        [("spatial_tiles", 16)],
        [],
    ]


@pytest.mark.parametrize("name", ["spatial_tiles", "lined", "program"])
def test_steps_by_hand_begin_with_the_program_that_takes_them(name):
    layer = mve_layers.depthwise(np.random.default_rng(16), (1, 8, 8, 16), (3, 3), pad=SQUARE)
    workload = layer.workload(FAMILY)
    what = {name: FAMILY.vector_sketches(workload)[name]}
    schedule = Space(tuple(cheapest_first(what, CORTEX_M55, mve_layers.UNCOMPARED))).default()
    given = Schedule.of(STEPS, **{STEPS: print_steps(FAMILY.trace(workload, schedule, CORTEX_M55))})
    kernels = [FAMILY.generate(workload, each, CORTEX_M55) for each in (schedule, given)]
    assert kernels[0] == kernels[1]


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    layer = mve_layers.depthwise(np.random.default_rng(0), (1, 2, 4, 16), (3, 3), pad=SQUARE)
    what = FAMILY.vector_sketches(layer.workload(FAMILY))["spatial_tiles"]
    kernel = built(what, assigned({"tile": "2x2", "part": 4, "packed": 1, "block": 16, "paired": 0}), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_spatial_tiles.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((1, 8, 8, 32), (3, 3), {"pad": (1, 0, 1, 0)}),
        ((2, 12, 16, 16), (3, 3), {"pad": (0, 1, 0, 1), "shifts": (31, 31)}),
        ((1, 17, 24, 48), (3, 3), {"pad": (0, 0, 1, 0), "shifts": (37, 40)}),
        ((1, 9, 20, 16), (3, 2), {"pad": (1, 1, 0, 0), "clamp": (-90, 80), "shifts": (34, 44)}),
        ((1, 8, 10, 16), (4, 4), {"pad": (2, 0, 0, 2), "table": True}),
        ((1, 8, 8, 32), (2, 3), {"pad": (0, 0, 1, 0), "element": "i32", "shifts": (30, 33)}),
    ],
    ids=str,
)
def test_windows_of_an_image_from_space_to_depth_are_exact(tmp_path, shape, kernel, options):
    layer = mve_layers.depthwise(np.random.default_rng(31), shape, kernel, stride=(2, 2), **options)
    what = FAMILY.vector_sketches(layer.workload(FAMILY))["space_to_depth"]
    found = {height: next(legal(layer, "space_to_depth", height=height)) for height in what.knobs(CORTEX_M55)["height"]}
    assert len(found) >= 1
    cases = [layer.case(FAMILY, each) for each in found.values()]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_words_of_two_rows_and_two_columns_that_lie_elsewhere_are_found_out(tmp_path):
    layer = mve_layers.depthwise(
        np.random.default_rng(32), (1, 8, 16, 16), (3, 3), stride=(2, 2), pad=(1, 0, 1, 0), shifts=(37, 40)
    )
    (schedule, *_) = legal(layer, "space_to_depth", height=4, part=8, block=16, paired=1)
    found = layer.case(FAMILY, schedule)
    wrong, count = re.subn(r"(apart__32_\d+_2_64\b[^;]*= \{0, 0, 0, 0), 64", r"\1, 68", found.source.text)
    assert count == 1
    wrong = wrong.replace(found.source.symbol, "wrong")
    planted = replace(found, source=replace(found.source, text=wrong, symbol="wrong"))
    assert [outcome.exact for outcome in run_cases([found, planted], tmp_path)] == [True, False]


def test_the_guess_copies_a_large_image_from_space_to_depth_where_there_is_memory():
    layer = mve_layers.depthwise(
        np.random.default_rng(33), (1, 28, 28, 32), (3, 3), stride=(2, 2), pad=(1, 0, 1, 0), shifts=(37, 40)
    )

    def guess(most: int) -> Schedule:
        variants = Depthwise(site=Site(most_scratch=most)).variants(layer.workload(FAMILY), CORTEX_M55)
        return Space(tuple(variants)).default()

    roomy, lean = guess(1 << 15), guess(1 << 12)
    assert (roomy.variant, roomy["height"]) == ("space_to_depth", 14)
    assert (lean.variant, lean["height"]) == ("space_to_depth", 2)
    assert guess(1 << 11).variant == "spatial_tiles"


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((1, 8, 8, 16), (3, 3), {"pad": SQUARE}),
        ((1, 8, 9, 16), (2, 3), {"stride": (2, 2)}),
        ((1, 8, 8, 16), (5, 5), {"stride": (2, 2), "pad": (2, 1, 2, 1)}),
        ((1, 8, 8, 16), (4, 4), {"stride": (2, 2), "pad": (1, 1, 1, 1)}),
        ((1, 13, 14, 16), (2, 2), {"stride": (2, 2), "pad": (0, 0, 0, 1), "dilation": (2, 2)}),
        ((1, 8, 8, 16), (3, 3), {"stride": (2, 2), "pad": (1, 0, 1, 0), "multiples": 2}),
    ],
    ids=str,
)
def test_windows_that_lie_in_no_words_of_two_rows_and_columns_have_other_sketches(shape, kernel, options):
    layer = mve_layers.depthwise(np.random.default_rng(34), shape, kernel, **options)
    assert "space_to_depth" not in FAMILY.vector_sketches(layer.workload(FAMILY))


def test_steps_tree_and_c_of_a_copy_from_space_to_depth_stay_what_they_are():
    layer = mve_layers.depthwise(np.random.default_rng(0), (1, 8, 8, 16), (3, 3), stride=(2, 2), pad=(1, 0, 1, 0))
    what = FAMILY.vector_sketches(layer.workload(FAMILY))["space_to_depth"]
    kernel = built(what, assigned({"height": 2, "part": 4, "block": 16, "paired": 0}), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_space_to_depth.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


def test_legal_schedules_print_different_code():
    layer = mve_layers.depthwise(np.random.default_rng(8), (1, 7, 6, 32), (3, 3), pad=SQUARE)
    schedules = list(itertools.islice(legal(layer), 12))
    texts = {layer.case(FAMILY, each).source.text for each in schedules}
    assert len(texts) == len(schedules) > 4


def test_the_guess_takes_the_memory_that_there_is():
    layer = mve_layers.depthwise(np.random.default_rng(8), (1, 10, 10, 64), (3, 3), pad=SQUARE)

    def block(most: int | None = None) -> int:
        family = Depthwise(site=Site(most_scratch=most))
        return int(Space(tuple(family.variants(layer.workload(FAMILY), CORTEX_M55))).default()["block"])

    whole = layer.case(FAMILY).source.scratch_bytes
    assert block() == block(whole) == 64
    assert block(whole - 1) < 64


def test_the_channels_of_every_tile_are_walked_by_the_core():
    layer = mve_layers.depthwise(np.random.default_rng(3), (1, 8, 8, 16), (3, 3), pad=SQUARE)
    for tile, part in itertools.product(("2x2", "1x1"), (8, 4)):
        steps = FAMILY.trace(layer.workload(FAMILY), next(legal(layer, tile=tile, part=part)), CORTEX_M55)
        assert str(steps[-1]).startswith("pipeline(n, ")


def _lined(layer) -> Space:
    """Its schedules with channels in lanes."""
    what = FAMILY.vector_sketches(layer.workload(FAMILY))["lined"]
    return Space(tuple(cheapest_first({"lined": what}, CORTEX_M55, mve_layers.UNCOMPARED)))


def test_random_layers_with_channels_in_lanes_are_exact(tmp_path):
    rng, choose = np.random.default_rng(13), random.Random(4)
    cases = []
    windows = (mve_layers.random_window(rng, largest_kernel=7) for _ in itertools.count())
    several = itertools.islice((window for window in windows if window["shape"][-1] > 1), 10)
    for number, window in enumerate(several):
        clamp = (int(rng.integers(-128, 0)), int(rng.integers(0, 128))) if number % 2 else None
        shape, kernel = window.pop("shape"), window.pop("kernel")
        shifts = [None, (28, 36), (32, 40)][number % 3]
        layer = mve_layers.depthwise(rng, shape, kernel, shifts=shifts, clamp=clamp, table=number % 4 > 1, **window)
        space = _lined(layer)
        cases += [layer.case(FAMILY, space.default()), layer.case(FAMILY, space.sample(choose))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("channels", [2, 3, 4, 21])
def test_results_of_32_bits_with_channels_in_lanes_are_exact(tmp_path, channels):
    layer = mve_layers.depthwise(
        np.random.default_rng(14), (2, 9, 3, channels), (5, 1), shifts=(30, 33), pad=(2, 2, 0, 0), element="i32"
    )
    space, choose = _lined(layer), random.Random(5)
    cases = [layer.case(FAMILY, space.default()), *(layer.case(FAMILY, space.sample(choose)) for _ in range(4))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_the_guess_has_channels_in_lanes_where_windows_fill_no_spatial_tiles():
    """A window of the whole image, and one whose elements lie far apart; three by three fills spatial tiles."""

    def guess(shape, kernel, **options):
        layer = mve_layers.depthwise(np.random.default_rng(15), shape, kernel, **options)
        return layer.space(FAMILY, compared=True).default().variant

    assert guess((1, 4, 4, 32), (4, 4)) == "lined"
    assert guess((1, 10, 10, 16), (3, 3), pad=(4, 4, 4, 4), dilation=(4, 4)) == "lined"
    assert guess((1, 8, 8, 16), (3, 3), pad=(1, 1, 1, 1)) == "spatial_tiles"
