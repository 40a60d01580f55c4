"""The generated kernels on int16 activations equal the reference model to the bit, whatever shape, scale, schedule."""

from __future__ import annotations

import random

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden_text
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.conv2d_i16 import Conv2dI16
from tosaic.backends.cortex_m.kernels.depthwise_i16 import DepthwiseI16
from tosaic.backends.cortex_m.kernels.mve_i16 import is_wide, parts_of, widened
from tosaic.backends.cortex_m.kernels.mve_match import number
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.support.mlir import functions

CONV2D, DEPTHWISE = Conv2dI16(), DepthwiseI16()
BEYOND_INT32 = 1 << 33


def _clamp(rng):
    return (int(rng.integers(-32768, 1)), int(rng.integers(1, 32768))) if rng.integers(2) else None


def _assert_exact(cases, folder):
    for outcome in run_cases(cases, folder):
        assert outcome.exact, outcome


@pytest.mark.parametrize("largest_bias", [1 << 20, BEYOND_INT32], ids=["narrow", "wide"])
def test_random_layers_and_schedules_of_conv2d_are_exact(tmp_path, largest_bias):
    rng, choose = np.random.default_rng(0), random.Random(0)
    cases = []
    for _ in range(6):
        window = mve_layers.random_window(rng)
        layer = mve_layers.conv2d_i16(
            rng,
            window.pop("shape"),
            int(rng.integers(1, 40)),
            **window,
            largest_bias=largest_bias,
            clamp=_clamp(rng),
            per_channel=bool(rng.integers(2)),
        )
        assert ("parts" in layer.workload(CONV2D).attributes) == (largest_bias == BEYOND_INT32)
        cases.append(layer.case(CONV2D))
        cases.append(layer.case(CONV2D, layer.space(CONV2D).sample(choose)))
    _assert_exact(cases, tmp_path)


@pytest.mark.parametrize(
    ("shifts", "largest_bias"),
    [
        ((2, 15), 1 << 20),
        ((12, 18), 1 << 20),
        ((16, 40), 1 << 20),
        ((45, 62), 1 << 20),
        ((20, 40), BEYOND_INT32),
        ((30, 62), BEYOND_INT32),
    ],
)
def test_shifts_over_the_whole_range_are_exact(tmp_path, shifts, largest_bias):
    rng = np.random.default_rng(shifts[0])
    shapes = [((1, 5, 5, 7), 21, (1, 1)), ((1, 4, 6, 3), 33, (3, 2)), ((2, 1, 1, 40), 10, (1, 1))]
    layers = [mve_layers.conv2d_i16(rng, *shape, shifts=shifts, largest_bias=largest_bias) for shape in shapes]
    _assert_exact([layer.case(CONV2D) for layer in layers], tmp_path)


@pytest.mark.parametrize("largest_bias", [1 << 20, BEYOND_INT32], ids=["narrow", "wide"])
def test_schedules_of_one_layer_are_exact(tmp_path, largest_bias):
    layer = mve_layers.conv2d_i16(np.random.default_rng(1), (1, 5, 5, 16), 10, (1, 1), largest_bias=largest_bias)
    space, choose = layer.space(CONV2D), random.Random(2)
    cases = [layer.case(CONV2D, space.sample(choose)) for _ in range(16)]
    _assert_exact(cases, tmp_path)


@pytest.mark.parametrize("largest_bias", [0, BEYOND_INT32], ids=["narrow", "wide"])
def test_extreme_inputs_and_weights_fit_the_accumulators(tmp_path, largest_bias):
    """511 products of -32768 and -128 and no more are sure to fit int32."""
    cases = []
    for depth in (511, 512):
        graph = Graph()
        x = graph.input((1, 1, 1, depth), "i16")
        bias = np.full(4, largest_bias)
        y = graph.conv2d(x, np.full((4, 1, 1, depth), -128), bias)
        y = graph.rescale(y, "i16", [1 << 14], [14 + (18 if largest_bias else 16)], scale32=False)
        layer = mve_layers.layer_of(graph, y, np.full((1, 1, 1, depth), -32768, np.int16))
        assert layer.workload(CONV2D).attributes.get("parts", 0) == (2 if depth == 512 else int(largest_bias > 0))
        cases.append(layer.case(CONV2D))
    _assert_exact(cases, tmp_path)


def test_random_layers_and_schedules_of_depthwise_are_exact(tmp_path):
    rng, choose, cases = np.random.default_rng(5), random.Random(5), []
    for _ in range(7):
        window = mve_layers.random_window(rng, 3)
        layer = mve_layers.depthwise_i16(rng, window.pop("shape"), **window, clamp=_clamp(rng))
        cases += [layer.case(DEPTHWISE, schedule) for schedule in (None, layer.space(DEPTHWISE).sample(choose))]
    _assert_exact(cases, tmp_path)


@pytest.mark.parametrize("shifts", [(2, 15), (12, 18), (16, 40), (45, 62)])
def test_shifts_of_depthwise_over_the_whole_range_are_exact(tmp_path, shifts):
    rng = np.random.default_rng(shifts[0])
    layers = [mve_layers.depthwise_i16(rng, (1, 5, 6, 21), (3, 3), pad=(1, 1, 1, 1), shifts=shifts) for _ in range(3)]
    _assert_exact([layer.case(DEPTHWISE) for layer in layers], tmp_path)


def test_depthwise_with_several_outputs_a_channel_is_left_to_others():
    layer = mve_layers.depthwise_i16(np.random.default_rng(6), (1, 4, 4, 3), (3, 3), 2)
    assert DEPTHWISE.match(layer.function) is None


def test_is_wide_holds_exactly_where_a_sum_can_leave_int32():
    weights = np.full((1, 511), -128, np.int8)
    room = 2**31 - 1 - 511 * 128 * 32768
    assert not is_wide(weights, np.array([room]))
    assert is_wide(weights, np.array([room + 1]))


@pytest.mark.parametrize(
    "shape",
    [
        ((1, 1, 1, 1536), 12, (1, 1), {}),
        ((1, 3, 3, 1540), 6, (1, 1), {}),
        ((1, 4, 4, 180), 7, (3, 3), {"pad": (1, 1, 1, 1)}),
    ],
    ids=str,
)
def test_sums_in_parts_are_exact(tmp_path, shape):
    *shape, options = shape
    layer = mve_layers.conv2d_i16(np.random.default_rng(4), *shape, **options)
    assert number(layer.workload(CONV2D), "parts") > 1
    space, choose = layer.space(CONV2D), random.Random(4)
    schedules = [space.default(), *(space.sample(choose) for _ in range(3))]
    _assert_exact([layer.case(CONV2D, schedule) for schedule in schedules], tmp_path)


def test_parts_are_as_few_as_fit_int32():
    weights, none = np.full((2, 3 * 511), -128, np.int8), np.zeros(2, np.int64)
    assert [parts_of(weights[:, :depth], none) for depth in (511, 3 * 511, 1024, 521)] == [1, 3, 4, None]
    assert parts_of(weights[:, :8], np.array([1, 1 << 38])) is None


def test_scaling_in_32_bits_rounds_as_the_spec():
    rng = np.random.default_rng(3)
    shift = np.arange(2, 63).astype(np.int8)
    multiplier = rng.integers(0, 1 << 15, shift.size).astype(np.int16)
    scale, wide = (factor.astype(object) for factor in widened(multiplier, shift))
    left = np.maximum(0, 32 - wide)
    right, edge = 31 - wide - left, 1 << 31
    for value in (0, 1, -1, 12345, -54321, edge - 1, -edge, (edge >> 4) + 5, 40000, -40000):
        for i, bits in enumerate(int(s) for s in shift):
            want = (value * int(multiplier[i]) + (1 << (bits - 1))) >> bits
            shifted = max(-edge, min(edge - 1, value << left[i]))
            got = ((shifted * scale[i] >> 31) + (1 << (-right[i] - 1))) >> -right[i]
            assert max(-32768, min(32767, got)) == max(-32768, min(32767, want))


@pytest.mark.parametrize("shifts", [(13, 15), (15, 15), (16, 18), (20, 40)])
def test_results_of_32_bits_are_exact(tmp_path, shifts):
    rng = np.random.default_rng(shifts[0])
    shapes = [((1, 5, 5, 7), 21, (1, 1)), ((1, 4, 6, 3), 33, (3, 2)), ((2, 1, 1, 40), 10, (1, 1))]
    layers = [mve_layers.conv2d_i16(rng, *shape, shifts=shifts, element="i32") for shape in shapes]
    _assert_exact([layer.case(CONV2D) for layer in layers], tmp_path)


def _function(element="i16", bias=0, shift=22):
    graph = Graph()
    y = graph.conv2d(graph.input((1, 4, 4, 8), "i16"), np.ones((4, 1, 1, 8)), np.full(4, bias))
    return functions(graph.module(graph.rescale(y, element, [1 << 14], [shift], scale32=False)))["main"], graph


@pytest.mark.parametrize(
    "changes",
    [{"element": "i8"}, {"element": "i32", "bias": BEYOND_INT32}, {"element": "i32", "bias": 1 << 30, "shift": 14}],
    ids=["int8", "int32 of sums of 48 bits", "int32 that may saturate"],
)
def test_what_it_cannot_do_exactly_it_does_not_match(changes):
    function, _graph = _function(**changes)
    assert CONV2D.match(function) is None


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    layer = mve_layers.conv2d_i16(np.random.default_rng(0), (1, 4, 4, 16), 8, (3, 3), pad=(1, 1, 1, 1))
    (variant,) = layer.space(CONV2D).variants
    what = CONV2D.vector_sketches(layer.workload(CONV2D))[variant.name]
    kernel = of_schedule(what, layer.space(CONV2D, compared=True).default(), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_conv2d_i16.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
