"""CONV2D of several pixels as programs on the M55: every schedule is exact, and takes the memory that it promises."""

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
from tosaic.backends.cortex_m.program.kernel import Promising, of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.tuner.space import Schedule, Space

FAMILY = Conv2d()
STRIPS = {
    "tile": "2x2", "together": 4, "share": 2, "block": 16, "repeats": 1, "unroll": 0, "held": 0, "finish": 1,
    "ahead": 2, "finish_ahead": 0, "weights": "params", "tall": 2,
}  # fmt: skip
GATHERED = {**STRIPS, "together": 14, "share": 2}
SHAPES = [
    ((1, 6, 7, 16), 16, (3, 3), {"pad": (1, 1, 1, 1)}),
    ((2, 7, 9, 8), 20, (3, 3), {"pad": (1, 1, 1, 1), "stride": (2, 2)}),
    ((1, 5, 8, 40), 16, (1, 1), {"pad": (1, 0, 2, 1)}),
    ((1, 9, 6, 12), 17, (2, 3), {"dilation": (2, 1), "pad": (1, 2, 0, 1)}),
    ((1, 4, 6, 32), 16, (5, 5), {"pad": (3, 3, 2, 2)}),
    ((1, 6, 20, 5), 33, (1, 5), {"stride": (1, 3)}),
    ((1, 7, 8, 16), 16, (3, 2), {"dilation": (1, 3), "pad": (1, 1, 1, 0)}),
    ((1, 9, 1, 16), 16, (3, 1), {"stride": (2, 1), "pad": (1, 1, 0, 0)}),
    ((1, 5, 4, 8), 20, (2, 4), {}),
]
SHORT = [
    ((1, 9, 8, 3), 16, (3, 3), {"pad": (1, 1, 1, 1), "stride": (1, 1)}),
    ((2, 11, 10, 1), 20, (5, 4), {"pad": (2, 2, 1, 1), "stride": (2, 2)}),
    ((1, 6, 9, 7), 17, (2, 3), {"dilation": (1, 2), "pad": (0, 1, 2, 2)}),
    ((1, 5, 6, 4), 7, (1, 1), {"pad": (1, 0, 0, 1)}),
    ((1, 4, 12, 20), 16, (3, 1), {"pad": (0, 0, 1, 1)}),
]


def sketch_of(layer: mve_layers.Layer, name: str) -> Promising:
    """The sketch of a layer."""
    found = FAMILY.vector_sketches(layer.workload(FAMILY))[name]
    assert isinstance(found, Promising)
    return found


def layer_of(shape, channels, kernel, options, **more) -> mve_layers.Layer:
    return mve_layers.conv2d(np.random.default_rng(channels), shape, channels, kernel, **options, **more)


@pytest.mark.parametrize("name, shape", [*(("strips", s) for s in SHAPES), *(("gathered", s) for s in SHORT)], ids=str)
def test_any_windows_bounds_and_types_are_exact(tmp_path, name, shape):
    layers = [layer_of(*shape, **more) for more in ({}, {"shifts": (31, 31), "clamp": (-90, 80)})]
    layers += [layer_of(*shape, table=True), layer_of(*shape, element="i16")]
    draw, cases = random.Random(shape[1]), []
    for layer in layers:
        (variant,) = (each for each in layer.space(FAMILY).variants if each.name == name)
        cases.append(layer.case(FAMILY, variant.first()))
        with suppress(RefusedError):
            cases.append(layer.case(FAMILY, Space((variant,)).sample(draw)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "changed", [{"tall": 6}, {"tall": 4}, {"tall": 1, "weights": "scratch"}, {"weights": "scratch", "block": 32},
                {"tile": "3x2", "together": 7}, {"tile": "7x1", "together": 7, "share": 1, "ahead": 1},
                {"tile": "1x4", "together": 1, "share": 1}], ids=str
)  # fmt: skip
def test_schedules_are_exact_and_take_the_memory_that_they_promise(tmp_path, changed):
    layer = layer_of((1, 6, 7, 16), 32, (3, 3), {"pad": (1, 1, 1, 1)}, shifts=(31, 31))
    what = sketch_of(layer, "strips")
    schedule = Schedule.of("strips", **STRIPS | changed)
    promised, kernel = what.promise(dict(schedule.knobs)), of_schedule(what, schedule, CORTEX_M55)
    assert promised["scratch"] == kernel.scratch
    assert promised["estimate"] == pytest.approx(kernel.cycles, rel=0.2)
    (outcome,) = run_cases([layer.case(FAMILY, schedule)], tmp_path)
    assert outcome.exact, outcome


@pytest.mark.parametrize("changed", [{}, {"tall": 5}, {"tall": 1, "together": 7}, {"unroll": 2}, {"held": 1}], ids=str)
def test_copied_windows_are_exact_and_take_the_memory_that_they_promise(tmp_path, changed):
    layer = layer_of((1, 9, 7, 7), 32, (3, 3), {"pad": (1, 1, 1, 1)}, shifts=(31, 31))
    what = sketch_of(layer, "gathered")
    schedule = Schedule.of("gathered", **GATHERED | changed)
    kernel = of_schedule(what, schedule, CORTEX_M55)
    assert what.promise(dict(schedule.knobs))["scratch"] == kernel.scratch
    (outcome,) = run_cases([layer.case(FAMILY, schedule)], tmp_path)
    assert outcome.exact, outcome


def test_the_generator_stands_in_where_a_strip_has_no_room():
    layer = layer_of((1, 16, 16, 16), 16, (3, 3), {"pad": (1, 1, 1, 1)})

    def names(**site) -> list[str]:
        return [v.name for v in Conv2d(site=Site(**site)).variants(layer.workload(FAMILY), CORTEX_M55)]

    assert names(constants=SLOW_MEMORY, most_scratch=1 << 14)[0] == "strips"
    assert "strips" not in names(most_scratch=448)
    assert names(most_scratch=448)
    assert names()[-1] == "strips" != names()[0]


def test_what_no_schedule_can_be_is_refused():
    layer = layer_of((1, 6, 7, 16), 16, (3, 3), {"pad": (1, 1, 1, 1)})
    what = sketch_of(layer, "strips")
    with pytest.raises(RefusedError, match=r"a turn of \d+ instructions is too long"):
        what.promise(STRIPS | {"repeats": 8})
    with pytest.raises(RefusedError, match="windows of several rows do not stay"):
        what.promise(STRIPS | {"held": 1})
    short = layer_of((1, 40, 40, 3), 16, (3, 3), {"pad": (1, 1, 1, 1)})
    what = sketch_of(short, "gathered")
    with pytest.raises(RefusedError, match="so many windows take too much memory"):
        what.promise(STRIPS | {"tall": 16})
    with pytest.raises(RefusedError, match="41 pixels have no"):
        what.promise(STRIPS | {"tall": 1, "together": 41})


@pytest.mark.parametrize("name, channels, knobs", [("strips", 16, STRIPS), ("gathered", 3, {**STRIPS, "unroll": 0})])
def test_steps_tree_and_c_of_one_schedule_stay_what_they_are(name, channels, knobs):
    layer = layer_of((1, 4, 4, channels), 16, (3, 3), {"pad": (1, 1, 1, 1)}, shifts=(31, 31))
    what = sketch_of(layer, name)
    kernel = of_schedule(what, Schedule.of(name, **knobs), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text(f"program_{name}.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
