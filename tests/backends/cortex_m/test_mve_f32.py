"""The kernels of floats stay within TOSA's error bounds, whatever the shape and schedule."""

from __future__ import annotations

import random
from dataclasses import replace

import mve_layers
import numpy as np
import pytest
from board import M4, run_cases
from golden_files import assert_golden_text
from slow_memory import SLOW_MEMORY
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.conv2d_f32 import Conv2dF32, MatmulF32
from tosaic.backends.cortex_m.kernels.depthwise_f32 import DepthwiseF32
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.reference.bounds import beyond_bounds
from tosaic.support.errors import BackendError
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.tuner.space import Schedule, Space


def _window(graph: Graph, name: str, x: ir.Value, weights, bias, *, pad, stride, dilation) -> ir.Value:
    kernel = weights.shape[1:3] if name == "conv2d" else weights.shape[:2]
    batch, *extents, _ = shape_of(x)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    outer = [(extents[i] + pad[2 * i] + pad[2 * i + 1] - spans[i]) // stride[i] + 1 for i in range(2)]
    operands = [x, graph.const(weights, "f32"), graph.const(bias, "f32"), *[graph.const([0], "f32")] * 2]
    options = {"acc_type": "f32", "pad": pad, "stride": stride, "dilation": dilation}
    return graph.op(name, operands, (batch, *outer, len(bias)), "f32", **options)


def _clamped(graph: Graph, y: ir.Value, nan_mode: str = "PROPAGATE") -> ir.Value:
    with graph.location:
        low, high = (ir.FloatAttr.get(element_type(y), value) for value in (-0.5, 0.75))
    return graph.unary("clamp", y, nan_mode=nan_mode, min_val=low, max_val=high)


def _conv(rng, graph):
    window = mve_layers.random_window(rng)
    x, channels, kernel = graph.input(window.pop("shape"), "f32"), int(rng.integers(1, 50)), window.pop("kernel")
    weights = rng.normal(size=(channels, *kernel, shape_of(x)[3]))
    return _window(graph, "conv2d", x, weights, rng.normal(size=channels), **window)


def _depthwise(rng, graph):
    window = mve_layers.random_window(rng, 3)
    shape, kernel = window.pop("shape"), window.pop("kernel")
    x = graph.input((*shape[:3], shape[3] + 3), "f32")
    weights = rng.normal(size=(*kernel, shape_of(x)[3], 1))
    return _window(graph, "depthwise_conv2d", x, weights, rng.normal(size=shape_of(x)[3]), **window)


def _matmul(rng, graph):
    batch, rows, depth, columns = (int(v) for v in rng.integers(1, (4, 14, 50, 40)))
    a, b = graph.input((batch, rows, depth), "f32"), graph.input((batch, depth, columns), "f32")
    zeros = [graph.const([0], "f32")] * 2
    return graph.op("matmul", [a, b, *zeros], (batch, rows, columns), "f32")


KNOBS = {"tile": "3x8", "unroll": 4, "load": "pairs", "ahead": 1, "weights": "params"}
FAMILIES = [(Conv2dF32(), _conv), (DepthwiseF32(), _depthwise), (MatmulF32(), _matmul)]


@pytest.mark.parametrize(("family", "build"), FAMILIES, ids=lambda value: getattr(value, "name", ""))
def test_random_layers_and_schedules_stay_within_bounds(tmp_path, family, build):
    rng, choose = np.random.default_rng(0), random.Random(0)
    layers, cases = [], []
    for number in range(4):
        graph = Graph()
        y = build(rng, graph)
        inputs = [rng.normal(size=shape_of(x)).astype(np.float32) for x in graph.inputs]
        layer = mve_layers.layer_of(graph, _clamped(graph, y) if number % 2 else y, *inputs)
        for schedule in (None, layer.space(family).sample(choose)):
            layers.append(layer)
            cases.append(layer.case(family, schedule))
    for layer, outcome in zip(layers, run_cases(cases, tmp_path), strict=True):
        assert outcome.inside, outcome
        assert beyond_bounds(layer.function, layer.inputs, outcome.outputs) == "", outcome


@pytest.mark.parametrize(("family", "build"), FAMILIES, ids=lambda value: getattr(value, "name", ""))
def test_layers_on_a_scalar_unit_stay_within_bounds_and_what_is_no_number_stays_that(tmp_path, family, build):
    rng, choose = np.random.default_rng(2), random.Random(0)
    layers, cases = [], []
    for number in range(6):
        graph = Graph()
        y = build(rng, graph)
        inputs = [rng.normal(size=shape_of(x)).astype(np.float32) for x in graph.inputs]
        if number == 5:
            inputs[0].flat[0] = np.nan
        layer = mve_layers.layer_of(graph, _clamped(graph, y) if number % 2 else y, *inputs)
        space = layer.space(family, M4.core)
        for schedule in (space.default(), space.sample(choose)):
            layers.append(layer)
            cases.append(layer.case(family, schedule, core=M4.core))
    for layer, outcome in zip(layers, run_cases(cases, tmp_path, bench=M4), strict=True):
        assert outcome.inside, outcome
        assert np.array_equal(np.isnan(outcome.outputs[0]), np.isnan(outcome.case.expected[0])), outcome
        if not np.isnan(layer.inputs[0]).any():
            assert beyond_bounds(layer.function, layer.inputs, outcome.outputs) == "", outcome


@pytest.mark.parametrize(("family", "build"), FAMILIES, ids=lambda value: getattr(value, "name", ""))
def test_what_is_not_a_number_stays_that_and_spreads_no_further(tmp_path, family, build):
    rng, cases = np.random.default_rng(1), []
    for number in range(2):
        graph = Graph()
        y = build(rng, graph)
        inputs = [rng.normal(size=shape_of(x)).astype(np.float32) for x in graph.inputs]
        inputs[0].flat[0] = np.nan
        cases.append(mve_layers.layer_of(graph, _clamped(graph, y) if number % 2 else y, *inputs).case(family))
    for outcome in run_cases(cases, tmp_path):
        assert np.array_equal(np.isnan(outcome.outputs[0]), np.isnan(outcome.case.expected[0])), outcome


def _dense(channels: int = 20):
    rng, graph = np.random.default_rng(0), Graph()
    x = graph.input((1, 3, 5, 16), "f32")
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    y = _window(graph, "conv2d", x, rng.normal(size=(channels, 1, 1, 16)), rng.normal(size=channels), **window)
    return graph, y, rng.normal(size=(1, 3, 5, 16)).astype(np.float32)


def test_steps_tree_and_c_of_one_product_stay_what_they_are():
    """Golden text. Where a change of it is meant, delete the file and run this test twice."""
    graph, y, x = _dense()
    what = Conv2dF32().product(mve_layers.layer_of(graph, y, x).workload(Conv2dF32()))
    kernel = of_schedule(what, Schedule.of("outer", **KNOBS), CORE)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_outer.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


def test_a_clamp_that_ignores_what_is_not_a_number_is_not_matched():
    graph, y, x = _dense()
    layer = mve_layers.layer_of(graph, _clamped(graph, y, "IGNORE"), x)
    assert Conv2dF32().match(layer.function) is None


def test_weights_that_are_no_numbers_are_left_to_the_generic_path():
    """Beyond the edges of an image they would not be multiplied by zeros."""
    rng, graph = np.random.default_rng(0), Graph()
    x, weights = graph.input((1, 3, 5, 4), "f32"), rng.normal(size=(4, 3, 3, 4))
    weights[0, 0, 0, 0] = np.inf
    window = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1)}
    y = _window(graph, "conv2d", x, weights, rng.normal(size=4), **window)
    layer = mve_layers.layer_of(graph, y, rng.normal(size=(1, 3, 5, 4)).astype(np.float32))
    assert Conv2dF32().match(layer.function) is None


def test_a_core_without_vectors_of_floats_has_none_of_the_variant():
    graph, y, x = _dense()
    workload = mve_layers.layer_of(graph, y, x).workload(Conv2dF32())
    assert not Conv2dF32().variants(workload, replace(CORE, isa=("dsp", "fp", "mve")))


def test_the_guess_copies_weights_out_of_a_slow_memory_where_there_is_room():
    graph, y, x = _dense(64)
    workload = mve_layers.layer_of(graph, y, x).workload(Conv2dF32())

    def guess(**site):
        return Space(tuple(Conv2dF32(site=Site(**site)).variants(workload, CORE))).default()["weights"]

    assert guess() == "params"
    assert guess(constants=SLOW_MEMORY) == "scratch"
    assert guess(constants=SLOW_MEMORY, most_scratch=256) == "params"


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"tile": "4x8"}, "more than 7 numbers live in a block at a time"),
        ({"weights": "scratch", "tile": "15x4"}, "weights that are read once are not copied"),
        ({"unroll": 3}, "3 of 16 elements are no pairs"),
    ],
    ids=str,
)
def test_a_sketch_says_what_it_has_no_steps_for(knobs, message):
    graph, y, x = _dense()
    what = Conv2dF32().product(mve_layers.layer_of(graph, y, x).workload(Conv2dF32()))
    with pytest.raises(BackendError, match=message):
        of_schedule(what, Schedule.of("outer", **{**KNOBS, **knobs}), CORE)
