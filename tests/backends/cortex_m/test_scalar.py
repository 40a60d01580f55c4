"""Products on cores without vectors: every schedule is exact on the board, and takes what other code takes at most."""

from __future__ import annotations

import itertools
import random

import mve_layers
import numpy as np
import pytest
from board import M0, M3, M4, M55, Bench, run_cases
from golden_files import assert_golden_text

from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.conv2d_i16 import Conv2dI16
from tosaic.backends.cortex_m.kernels.depthwise import Depthwise
from tosaic.backends.cortex_m.kernels.depthwise_i16 import DepthwiseI16
from tosaic.backends.cortex_m.kernels.matmul import Matmul
from tosaic.backends.cortex_m.kernels.matmul_i16 import MatmulI16
from tosaic.backends.cortex_m.kernels.sketch_constants import normalized
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.tuner.space import Schedule

BENCHES = pytest.mark.parametrize("bench", [M4, M3, M0], ids=["DSP", "scalar", "thumb"])


def _cases(layer, family, bench: Bench, rng: random.Random):
    """The layer under its first schedule, and under two at random."""
    space = layer.space(family, bench.core)
    schedules = [space.default(), space.sample(rng), space.sample(rng)]
    return [layer.case(family, schedule, (), bench.core) for schedule in dict.fromkeys(schedules)]


@BENCHES
def test_convolutions_are_exact(tmp_path, bench):
    draw, rng = np.random.default_rng(0), random.Random(0)
    layers = [
        mve_layers.conv2d(draw, (1, 5, 5, 16), 24, (1, 1)),
        mve_layers.conv2d(draw, (1, 6, 5, 8), 6, (3, 3), pad=(1, 1, 1, 1), clamp=(-100, 90)),
        mve_layers.conv2d(draw, (1, 8, 8, 3), 8, (3, 3), stride=(2, 2), pad=(0, 1, 0, 1), table=True),
        mve_layers.conv2d(draw, (2, 7, 6, 5), 3, (3, 2), dilation=(2, 1), clamp=(-128, 10), table=True),
        mve_layers.conv2d(draw, (1, 12, 4, 1), 8, (10, 4), pad=(4, 5, 1, 2)),
        mve_layers.conv2d(draw, (1, 1, 1, 64), 10, (1, 1)),
        mve_layers.conv2d(draw, (3, 1, 1, 37), 5, (1, 1), per_channel=False),
        mve_layers.conv2d(draw, (1, 4, 4, 8), 4, (1, 1), shifts=(20, 31)),
        mve_layers.conv2d(draw, (1, 4, 4, 8), 4, (1, 1), shifts=(31, 31)),
        mve_layers.conv2d(draw, (1, 4, 4, 12), 4, (3, 3), shifts=(40, 62)),
    ]
    cases = [case for layer in layers for case in _cases(layer, Conv2d(), bench, rng)]
    for outcome in run_cases(cases, tmp_path, bench=bench):
        assert outcome.exact, outcome


@BENCHES
def test_layers_of_int16_are_exact(tmp_path, bench):
    draw, rng, one = np.random.default_rng(1), random.Random(1), (1, 1, 1, 1)
    families = {Conv2dI16(): mve_layers.conv2d_i16, DepthwiseI16(): mve_layers.depthwise_i16}
    conv2d, depthwise = ([family, layer] for family, layer in families.items())
    layers = [
        (*conv2d, ((1, 5, 5, 16), 24, (1, 1)), {}),
        (*conv2d, ((1, 6, 5, 8), 6, (3, 3)), {"pad": one, "clamp": (-3000, 9000)}),
        (*conv2d, ((2, 7, 6, 5), 3, (3, 2)), {"dilation": (2, 1), "shifts": (12, 18)}),
        (*conv2d, ((1, 1, 1, 37), 10, (1, 1)), {"per_channel": False, "shifts": (45, 62)}),
        (*conv2d, ((1, 4, 4, 8), 4, (1, 1)), {"element": "i32", "shifts": (16, 18)}),
        (*depthwise, ((1, 6, 5, 8), (3, 3)), {"pad": one}),
        (*depthwise, ((1, 9, 9, 5), (3, 2)), {"stride": (2, 1), "clamp": (-3000, 9000)}),
        (*depthwise, ((2, 7, 7, 3), (3, 3)), {"dilation": (2, 2), "shifts": (12, 18)}),
    ]
    drawn = ((family, layer(draw, *shape, **options)) for family, layer, shape, options in layers)
    cases = [case for family, layer in drawn for case in _cases(layer, family, bench, rng)]
    assert [str(outcome) for outcome in run_cases(cases, tmp_path, bench=bench) if not outcome.exact] == []


def test_sums_of_int16_beyond_int32_have_no_program():
    layer = mve_layers.conv2d_i16(np.random.default_rng(2), (1, 3, 3, 8), 4, (1, 1), largest_bias=1 << 33)
    assert layer.space(Conv2dI16(), M4.core).variants == ()


def test_weights_in_pairs_serve_several_pixels(tmp_path):
    draw, family = np.random.default_rng(6), Conv2d()
    layer = mve_layers.conv2d(draw, (1, 4, 8, 8), 8, (3, 3), pad=(1, 1, 1, 1), least=-127)
    tiles = ("4x2", "3x2", "2x2", "4x1", "3x1", "2x1", "1x8", "1x2")
    knobs = {"isa": "dsp", "unroll": 6, "scale": "high", "windows": "copied", "weights": "pairs"}
    schedules = [Schedule.of("program", tile=tile, **knobs) for tile in tiles]
    cases = [layer.case(family, schedule, (), M4.core) for schedule in schedules]
    outcomes = run_cases(cases, tmp_path, bench=M4)
    assert [str(outcome) for outcome in outcomes if not outcome.exact] == []
    assert outcomes[0].instructions < outcomes[3].instructions < outcomes[-1].instructions


@BENCHES
def test_depthwise_convolutions_are_exact(tmp_path, bench):
    draw, rng = np.random.default_rng(1), random.Random(1)
    layers = [
        mve_layers.depthwise(draw, (1, 8, 8, 6), (3, 3), pad=(1, 1, 1, 1)),
        mve_layers.depthwise(draw, (1, 8, 6, 5), (3, 3), stride=(2, 2), pad=(0, 1, 1, 0), clamp=(-100, 5)),
        mve_layers.depthwise(draw, (2, 7, 6, 3), (5, 3), 2, pad=(2, 2, 1, 1)),
        mve_layers.depthwise(draw, (1, 7, 9, 4), (5, 5), pad=(2, 2, 2, 2), table=True),
        mve_layers.depthwise(draw, (1, 9, 9, 4), (3, 3), dilation=(2, 2)),
        mve_layers.depthwise(draw, (1, 3, 3, 4), (3, 3)),
        mve_layers.depthwise(draw, (1, 8, 10, 3), (2, 4), stride=(1, 2)),
    ]
    cases = [case for layer in layers for case in _cases(layer, Depthwise(), bench, rng)]
    for outcome in run_cases(cases, tmp_path, bench=bench):
        assert outcome.exact, outcome


def test_pairs_of_channels_are_exact_in_depthwise_convolutions(tmp_path):
    draw, family = np.random.default_rng(7), Depthwise()
    layers = [
        mve_layers.depthwise(draw, (1, 7, 8, 8), (3, 3), pad=(1, 1, 1, 1)),
        mve_layers.depthwise(draw, (2, 9, 7, 4), (3, 3), stride=(2, 2), pad=(0, 0, 1, 1), clamp=(-100, 5)),
        mve_layers.depthwise(draw, (1, 6, 7, 8), (5, 3), 2, pad=(2, 2, 1, 1)),
        mve_layers.depthwise(draw, (1, 9, 9, 4), (3, 3), dilation=(2, 2)),
        mve_layers.depthwise(draw, (1, 12, 1, 4), (5, 1), pad=(2, 2, 0, 0), table=True),
        mve_layers.depthwise(draw, (1, 1, 9, 8), (1, 3), pad=(0, 0, 1, 1)),
        mve_layers.depthwise(draw, (1, 8, 9, 4), (7, 7), stride=(1, 2), pad=(3, 3, 3, 3)),
    ]
    cases, rng = [], random.Random(7)
    for layer in layers:
        space = next(v for v in layer.space(family, M4.core).variants if v.name == "program")
        knobs = {name: [c for c in choices if c != "channel"] for name, choices in space.knobs.items()}
        drawn = ({name: rng.choice(choices) for name, choices in knobs.items()} for _ in itertools.count())
        some = itertools.islice((each for each in drawn if space.legal(each)), 3)
        cases += [layer.case(family, Schedule.of("program", **each), (), M4.core) for each in some]
    assert [str(outcome) for outcome in run_cases(cases, tmp_path, bench=M4) if not outcome.exact] == []


def test_pairs_of_channels_take_fewer_instructions_than_a_channel(tmp_path):
    draw, family = np.random.default_rng(8), Depthwise()
    layer = mve_layers.depthwise(draw, (1, 12, 6, 16), (3, 3), pad=(1, 1, 1, 1))
    knobs = {"rows": 12, "pixels": 3, "copied": 6, "scale": "high"}
    schedules = [
        Schedule.of("program", isa=isa, tile=tile, **knobs) for isa, tile in (("dsp", "column"), ("scalar", "channel"))
    ]
    cases = [layer.case(family, schedule, (), M4.core) for schedule in schedules]
    pairs, channel = run_cases(cases, tmp_path, bench=M4)
    assert pairs.exact and channel.exact
    assert pairs.instructions < 0.9 * channel.instructions


@BENCHES
def test_matrix_products_are_exact(tmp_path, bench):
    draw, rng = np.random.default_rng(2), random.Random(2)
    layers = [
        mve_layers.matmul(draw, 2, 8, 16, 12),
        mve_layers.matmul(draw, 1, 5, 7, 3, clamp=(-50, 50)),
        mve_layers.matmul(draw, 1, 1, 32, 9, table=True),
        mve_layers.matmul(draw, 2, 2, 8, 12, transposed=True),
    ]
    cases = [case for layer in layers for case in _cases(layer, Matmul(), bench, rng)]
    for outcome in run_cases(cases, tmp_path, bench=bench):
        assert outcome.exact, outcome


@pytest.mark.parametrize("bench", [M55, M4, M3, M0], ids=["MVE", "DSP", "scalar", "thumb"])
def test_matrix_products_of_int16_are_exact(tmp_path, bench):
    draw, rng, family = np.random.default_rng(9), random.Random(9), MatmulI16()
    layers = [
        mve_layers.matmul_i16(draw, 2, 8, 16, 12),
        mve_layers.matmul_i16(draw, 1, 5, 7, 3),
        mve_layers.matmul_i16(draw, 2, 2, 8, 12, transposed=True),
        mve_layers.matmul_i16(draw, 1, 2, 256, 2, least=-1 << 15, most=-1 << 15),
        mve_layers.matmul_i16(draw, 1, 2, 256, 2, least=-129, most=-129),
    ]
    cases = [case for layer in layers for case in _cases(layer, family, bench, rng)]
    assert [str(outcome) for outcome in run_cases(cases, tmp_path, bench=bench) if not outcome.exact] == []


def test_deep_matrix_products_of_int16_need_sums_of_64_bits():
    layer = mve_layers.matmul_i16(np.random.default_rng(9), 1, 2, 258, 2)
    found = [MatmulI16().variants(layer.workload(MatmulI16()), bench.core) for bench in (M3, M0)]
    assert [[variant.name for variant in variants] for variants in found] == [["long"], []]


@BENCHES
def test_wider_results_are_exact(tmp_path, bench):
    draw, rng = np.random.default_rng(3), random.Random(3)
    layers = [
        mve_layers.conv2d(draw, (1, 4, 4, 8), 4, (1, 1), element="i16"),
        mve_layers.conv2d(draw, (1, 5, 4, 6), 6, (3, 3), pad=(1, 1, 1, 1), element="i32", shifts=(31, 31)),
        mve_layers.conv2d(draw, (1, 1, 1, 64), 12, (1, 1), element="i32", shifts=(31, 40)),
    ]
    cases = [case for layer in layers for case in _cases(layer, Conv2d(), bench, rng)]
    for outcome in run_cases(cases, tmp_path, bench=bench):
        assert outcome.exact, outcome


def test_a_schedule_of_another_space_is_refused_in_one_line():
    layer, family = mve_layers.conv2d(np.random.default_rng(4), (1, 1, 3, 4), 5, (1, 1)), Conv2d()
    knobs = dict(layer.space(family, M4.core).default().knobs)
    with pytest.raises(Exception, match="3 pixels and 5 channels have no tile of 4x2"):
        layer.case(family, Schedule.of("program", **{**knobs, "tile": "4x2"}), (), M4.core)


def test_multipliers_are_shifted_up_as_far_as_they_go():
    multiplier, shift = np.array([1, 0, 3 << 20, (1 << 31) - 1], np.int32), np.array([31, 40, 31, 33], np.int8)
    up, further = normalized(multiplier, shift)
    assert up.tolist() == [1 << 30, 0, 3 << 29, (1 << 31) - 1]
    assert further.tolist() == [61, 62, 40, 33]
    values = np.array([-(1 << 30), -7, 0, 5, (1 << 30) - 1], np.int64)[:, None]

    def scaled(m, s):
        return values * m.astype(object) + (1 << (s.astype(object) - 1)) >> s.astype(object)

    assert (scaled(multiplier, shift) == scaled(up, further)).all()


@pytest.mark.parametrize(
    ("name", "family", "layer"),
    [
        ("conv2d", Conv2d(), lambda draw: mve_layers.conv2d(draw, (1, 4, 4, 8), 4, (3, 3), pad=(1, 1, 1, 1))),
        ("depthwise", Depthwise(), lambda draw: mve_layers.depthwise(draw, (1, 4, 4, 2), (3, 3), pad=(1, 1, 1, 1))),
        ("matmul", Matmul(), lambda draw: mve_layers.matmul(draw, 1, 4, 8, 4)),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_steps_tree_and_c_of_one_schedule_stay_what_they_are(name, family, layer):
    made = layer(np.random.default_rng(5))
    kernel = of_schedule(
        family.sketch(made.workload(family)), made.space(family, M4.core, compared=True).default(), M4.core
    )
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.instructions} instructions, {kernel.scratch} bytes of working memory\n"
    assert_golden_text(f"program_{name}.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
