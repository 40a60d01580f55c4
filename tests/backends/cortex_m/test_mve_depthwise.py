"""The generated DEPTHWISE_CONV2D kernels equal the reference model to the bit."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from itertools import product

import mve_layers
import numpy as np
import pytest
from board import run_cases
from slow_memory import SLOW_MEMORY

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import ANYWHERE, Site
from tosaic.backends.cortex_m.kernels.depthwise import Depthwise
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.patch_turn import ALL_AHEAD
from tosaic.backends.cortex_m.nest.patches import Patches
from tosaic.backends.cortex_m.program.kernel import cheapest_first
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule, Space

FAMILY = Depthwise()


def test_random_layers_and_schedules_are_exact(tmp_path):
    rng, choose = np.random.default_rng(0), random.Random(0)
    cases = []
    for _ in range(25):
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
    layers = [mve_layers.depthwise(rng, (1, 6, 7, 9), (3, 3), shifts=shifts, pad=(1, 1, 1, 1)) for _ in range(3)]
    assert all(outcome.exact for outcome in run_cases([layer.case(FAMILY) for layer in layers], tmp_path))


def test_schedules_of_one_layer_are_exact(tmp_path):
    layer = mve_layers.depthwise(np.random.default_rng(1), (2, 9, 7, 20), (3, 3), pad=(1, 1, 1, 1))
    space, choose = layer.space(FAMILY), random.Random(2)
    cases = [layer.case(FAMILY, space.sample(choose)) for _ in range(80)]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("window", [{"stride": (1, 1)}, {"stride": (2, 2)}, {"multiples": 2}], ids=str)
def test_results_of_32_bits_are_exact(tmp_path, window):
    """The first of two roundings."""
    layer = mve_layers.depthwise(
        np.random.default_rng(4), (2, 9, 7, 20), (3, 3), shifts=(30, 33), pad=(1, 1, 1, 1), element="i32", **window
    )
    space, choose = layer.space(FAMILY), random.Random(3)
    cases = [layer.case(FAMILY), *(layer.case(FAMILY, space.sample(choose)) for _ in range(12))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("tile", [(2, 2), (4, 1), (1, 4), (1, 1)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2)])
def test_patches_hold_each_weight_once_per_output(tile, stride):
    geometry = Geometry(1, 12, 12, 3, (3, 3), stride, (0, 0, 0, 0), (1, 1), 10 // stride[0], 10 // stride[1])
    patches = Patches(geometry, *tile, deep=False)
    weights = np.arange(1, 28).reshape(3, 3, 3).astype(np.int8)
    packed = np.stack([patches.patch_weights(weights, *use) for use in patches.uses], axis=1)
    assert packed.shape == (3, len(patches.uses), 16)
    for cell in range(len(patches.cells)):
        held = packed[:, [i for i, (user, _) in enumerate(patches.uses) if user == cell]]
        for channel in range(3):
            assert sorted(held[channel][held[channel] != 0]) == sorted(weights[channel].ravel())


def test_weights_without_zeros_take_their_own_bytes_and_stay_exact(tmp_path):
    """Expanded all at once, or block by block into less memory."""
    layer = mve_layers.depthwise(np.random.default_rng(7), (2, 9, 5, 64), (3, 3), pad=(1, 1, 1, 1))
    default = layer.space(FAMILY).default()
    cases = {}
    for weights, block in (("params", 64), ("scratch", 64), ("scratch", 16)):
        knobs = tuple(sorted({**dict(default.knobs), "weights": weights, "block": block}.items()))
        cases[weights, block] = layer.case(FAMILY, replace(default, knobs=knobs))
    packed, whole, blocked = (case.source for case in cases.values())
    assert len(packed.params) - len(whole.params) >= 64 * (16 - 9)
    assert blocked.params == whole.params
    assert whole.scratch_bytes - blocked.scratch_bytes >= 48 * 16
    assert all(outcome.exact for outcome in run_cases(list(cases.values()), tmp_path))


def test_loops_over_strips_of_parts_of_a_row_are_exact(tmp_path):
    layer = mve_layers.depthwise(np.random.default_rng(9), (2, 11, 21, 16), (3, 3), pad=(1, 1, 1, 1))
    (variant,) = [one for one in layer.space(FAMILY).variants if "strips" in one.knobs]
    first = {name: choices[0] for name, choices in variant.knobs.items()}
    loops = [loop for loop in variant.knobs["loop"] if str(loop).startswith("strips of ")]
    every = [
        {**first, "loop": loop, "strips": strips, "tile": tile, "held": held, "ahead": ahead}
        for loop, strips, (tile, held), ahead in product(loops, (1, 3, 6), (("2x2", 4), ("1x1", 1)), (ALL_AHEAD, 1))
    ]
    cases = [layer.case(FAMILY, Schedule.of(variant.name, **one)) for one in every if variant.legal(one)]
    assert len(cases) > 20
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(("channels", "block"), [(20, 20), (32, 16)])
def test_strips_packed_in_every_way_are_exact(tmp_path, channels, block):
    layer = mve_layers.depthwise(np.random.default_rng(10), (2, 6, 7, channels), (3, 3), pad=(1, 1, 1, 1))
    (variant,) = [one for one in layer.space(FAMILY).variants if "pack" in one.knobs]
    first = {name: choices[0] for name, choices in variant.knobs.items()} | {"block": block}
    ways = product(variant.knobs["pack"], variant.knobs["pack_ahead"])
    legal = [one for pack, ahead in ways if variant.legal(one := {**first, "pack": pack, "pack_ahead": ahead})]
    assert len(legal) >= 15 and {one["pack_ahead"] for one in legal} == {0, 1, 2, 3, 4}
    for outcome in run_cases([layer.case(FAMILY, Schedule.of(variant.name, **one)) for one in legal], tmp_path):
        assert outcome.exact, outcome


def test_rows_that_no_window_meets_are_not_packed():
    layer = mve_layers.depthwise(np.random.default_rng(11), (1, 8, 8, 16), (3, 3), stride=(2, 2), pad=(0, 1, 0, 1))
    schedule = Schedule.of("patches", **{**dict(layer.space(FAMILY).default().knobs), "tile": "1x1", "pack_ahead": 0})
    kernel = FAMILY.generate(layer.workload(FAMILY), schedule, CORTEX_M55)
    pack = kernel.text[kernel.text.index("INLINE void pack") : kernel.text.index("INLINE void looped")]
    assert "r2" in pack and "r3" not in pack


@pytest.mark.parametrize(
    ("width", "pack", "ahead", "message"),
    [
        (4, 2, 0, "cannot be split by 32"),
        (4, 1, 1, "1 turns leave no loop in which loads are executed ahead"),
        (3, 1, 1, "cannot be split by 16"),
    ],
)
def test_packings_that_a_row_has_no_room_for_are_refused(width, pack, ahead, message):
    layer = mve_layers.depthwise(np.random.default_rng(12), (1, 6, width, 5), (1, 1))
    (variant,) = [one for one in layer.space(FAMILY).variants if "pack" in one.knobs]
    knobs = {**{name: choices[0] for name, choices in variant.knobs.items()}, "pack": pack, "pack_ahead": ahead}
    with pytest.raises(BackendError, match=message):
        FAMILY.generate(layer.workload(FAMILY), Schedule.of("patches", **knobs), CORTEX_M55)


@pytest.mark.parametrize("knobs", [("loop", "strips"), ("tile", "held"), ("pack", "pack_ahead")])
def test_legal_schedules_print_different_code(knobs):
    layer = mve_layers.depthwise(np.random.default_rng(8), (1, 7, 5, 32), (3, 3), pad=(1, 1, 1, 1))
    (variant,) = [one for one in layer.space(FAMILY).variants if set(knobs) <= set(one.knobs)]
    first = {name: choices[0] for name, choices in variant.knobs.items()}
    every = [first | dict(zip(knobs, choices, strict=True)) for choices in product(*(variant.knobs[k] for k in knobs))]
    legal = [Schedule.of(variant.name, **one) for one in every if variant.legal(one)]
    assert 1 < len(legal) < len(every)
    assert len({layer.case(FAMILY, schedule).source.text for schedule in legal}) == len(legal)


def test_the_guess_expands_weights_where_their_memory_is_slow_and_there_is_room():
    """All of them at once, or block by block where there is less."""
    layer = mve_layers.depthwise(np.random.default_rng(8), (1, 12, 12, 32), (3, 3), pad=(1, 1, 1, 1))

    def guess(**site):
        found = Space(tuple(Depthwise(site=Site(**site)).variants(layer.workload(FAMILY), CORTEX_M55))).default()
        return found["weights"], found["block"]

    assert guess() == ("params", 32)
    assert guess(constants=SLOW_MEMORY) == ("scratch", 16)
    whole = layer.case(FAMILY).source.scratch_bytes
    assert guess(constants=SLOW_MEMORY, most_scratch=whole) == ("scratch", 16)
    assert guess(constants=SLOW_MEMORY, most_scratch=whole // 2) == ("params", 16)


def _lined(layer) -> Space:
    """Its schedules with channels in lanes."""
    return Space(tuple(cheapest_first(FAMILY.vector_sketches(layer.workload(FAMILY)), CORTEX_M55, ANYWHERE)))


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


def test_the_guess_has_channels_in_lanes_where_windows_fill_no_patches():
    """A window of the whole image, and one whose elements lie far apart; three by three fills patches."""

    def guess(shape, kernel, **options):
        layer = mve_layers.depthwise(np.random.default_rng(15), shape, kernel, **options)
        return layer.space(FAMILY).default().variant

    assert guess((1, 4, 4, 32), (4, 4)) == "lined"
    assert guess((1, 10, 10, 16), (3, 3), pad=(4, 4, 4, 4), dilation=(4, 4)) == "lined"
    assert guess((1, 8, 8, 16), (3, 3), pad=(1, 1, 1, 1)) == "patches"
