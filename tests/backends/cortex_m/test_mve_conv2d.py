"""The generated CONV2D kernels equal the reference model to the bit, whatever the shape, scale and schedule."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import mve_layers
import numpy as np
import pytest
from board import run_cases
from slow_memory import SLOW_MEMORY
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.support.mlir import functions
from tosaic.tuner.space import Space, Variant

FAMILY = Conv2d()


def test_random_layers_and_schedules_are_exact(tmp_path):
    rng, choose = np.random.default_rng(0), random.Random(0)
    cases = []
    for _ in range(10):
        window = mve_layers.random_window(rng)
        clamp = (int(rng.integers(-128, 0)), int(rng.integers(0, 128))) if rng.integers(2) else None
        channels, per_channel = int(rng.integers(1, 40)), bool(rng.integers(2))
        layer = mve_layers.conv2d(
            rng,
            window.pop("shape"),
            channels,
            **window,
            clamp=clamp,
            table=bool(rng.integers(2)),
            per_channel=per_channel,
        )
        cases.append(layer.case(FAMILY))
        with suppress(RefusedError):
            cases.append(layer.case(FAMILY, layer.space(FAMILY).sample(choose)))
    assert len(cases) > 16
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("element", ["i16", "i32"])
def test_wider_results_are_exact(tmp_path, element):
    rng, choose, cases = np.random.default_rng(7), random.Random(7), []
    for shifts in [(31, 31), (32, 40), (28, 33), (45, 62)]:
        for _ in range(3):
            window, channels = mve_layers.random_window(rng), int(rng.integers(1, 40))
            layer = mve_layers.conv2d(rng, window.pop("shape"), channels, **window, shifts=shifts, element=element)
            cases.append(layer.case(FAMILY))
            with suppress(RefusedError):
                cases.append(layer.case(FAMILY, layer.space(FAMILY).sample(choose)))
    assert len(cases) > 20
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize("shifts", [(16, 31), (30, 34), (45, 62)])
def test_shifts_over_the_whole_range_are_exact(tmp_path, shifts):
    rng = np.random.default_rng(shifts[0])
    shapes = [((1, 5, 5, 7), 21, (1, 1)), ((1, 4, 6, 3), 33, (3, 2)), ((2, 1, 1, 40), 10, (1, 1))]
    cases = [mve_layers.conv2d(rng, *shape, shifts=shifts).case(FAMILY) for shape in shapes]
    assert all(outcome.exact for outcome in run_cases(cases, tmp_path))


def test_schedules_of_one_layer_are_exact(tmp_path):
    layer = mve_layers.conv2d(np.random.default_rng(1), (1, 5, 5, 8), 20, (2, 2))
    generated = tuple(variant for variant in layer.space(FAMILY).variants if variant.assignments > 1)
    space, choose = Space(generated), random.Random(1)
    schedules = {space.sample(choose) for _ in range(34)}
    assert len(schedules) >= 30
    cases = [layer.case(FAMILY, schedule) for schedule in schedules]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_equal_shapes_share_code_and_differ_in_params():
    rng = np.random.default_rng(2)
    sources = [mve_layers.conv2d(rng, (1, 6, 6, 16), 16, (3, 3), least=0).case(FAMILY).source for _ in range(2)]
    assert sources[0].symbol == sources[1].symbol
    assert sources[0].text == sources[1].text
    assert sources[0].params != sources[1].params


def _function(**changes):
    rng, graph = np.random.default_rng(4), Graph()
    x = graph.input((1, 4, 4, 8), changes.pop("element", "i8"))
    y = graph.conv2d(x, rng.integers(-9, 9, (4, 1, 1, 8)), np.zeros(4))
    z = graph.rescale(y, changes.pop("output", "i8"), [1 << 30], [38], **changes)
    return functions(graph.module(z))["main"], graph


@pytest.mark.parametrize("changes", [{"rounding": "DOUBLE_ROUND"}, {"output_unsigned": True}], ids=str)
def test_what_it_cannot_do_exactly_it_does_not_match(changes):
    function, _graph = _function(**changes)
    assert FAMILY.match(function) is None


def test_a_core_without_mve_gets_a_program():
    function, _graph = _function()
    workload = FAMILY.match(function)
    assert workload is not None
    without, with_vectors = (
        FAMILY.variants(workload, core) for core in (replace(CORTEX_M55, isa=("dsp",)), CORTEX_M55)
    )
    assert [variant.name for variant in without] == ["program"]
    assert "program" not in [variant.name for variant in with_vectors]


def test_a_space_holds_a_hundred_thousand_legal_schedules():
    layer = mve_layers.conv2d(np.random.default_rng(6), (1, 25, 5, 64), 64, (1, 1))
    choose, draws = random.Random(0), 400

    def legal(variant: Variant) -> float:
        drawn = ({name: choose.choice(choices) for name, choices in variant.knobs.items()} for _ in range(draws))
        return variant.assignments * sum(map(variant.legal, drawn)) / draws

    assert sum(map(legal, layer.space(FAMILY).variants)) > 1e5


@pytest.mark.parametrize(
    "shape, channels, kernel", [((1, 1, 1, 16), 24, 1), ((1, 1, 1, 64), 12, 1), ((1, 6, 6, 8), 16, 3)]
)
def test_the_working_memory_of_the_best_guess_holds_a_guess(shape, channels, kernel):
    """So that what is confined to it is not left to the generic lowering."""
    layer = mve_layers.conv2d(np.random.default_rng(2), shape, channels, (kernel, kernel))
    for constants in (None, SLOW_MEMORY):
        room = layer.case(FAMILY).source.scratch_bytes
        confined = Conv2d(site=Site(constants, room)).variants(layer.workload(FAMILY), CORTEX_M55)
        assert confined and Space(tuple(confined)).default()
