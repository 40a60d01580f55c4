"""CONV2D of several pixels as programs on the M55: every schedule is exact, and takes the memory that it promises."""

from __future__ import annotations

import random
import re
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
from tosaic.backends.cortex_m.kernels.strip_sketch import GatheredSketch
from tosaic.backends.cortex_m.kernels.vector_sketch import IN_PLACE as IN
from tosaic.backends.cortex_m.program.guesses import cheapest_first
from tosaic.backends.cortex_m.program.kernel import Promising, is_promising, of_schedule
from tosaic.backends.cortex_m.program.schedule import parse_steps, replayed
from tosaic.backends.cortex_m.program.sketches.tiles import tile_sizes
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.tuner.space import Schedule, Space

FAMILY = Conv2d()
STRIPS = {
    "tile": "2x2", "together": 4, "share": 2, "block": 16, "repeats": 1, "unroll": 0, "held": 0, "epilogue_unroll": 1,
    "ahead": 2, "epilogue_ahead": 0, "weights": "params", "bias": "results", "tall": 2,
}  # fmt: skip
IN_PLACE = {name: value for name, value in STRIPS.items() if name != "tall"} | {"together": 2}
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
    ((1, 9, 9, 2), 16, (4, 2), {}),
]


def sketch_of(layer: mve_layers.Layer, name: str) -> Promising:
    """The sketch of a layer."""
    found = FAMILY.vector_sketches(layer.workload(FAMILY))[name]
    assert is_promising(found)
    return found


def layer_of(shape, channels, kernel, options, **more) -> mve_layers.Layer:
    return mve_layers.conv2d(np.random.default_rng(channels), shape, channels, kernel, **options, **more)


@pytest.mark.parametrize(
    "name, shape",
    [*(("strips", s) for s in SHAPES), *(("gathered", s) for s in SHORT),
     *((f"strips{IN}", s) for s in SHAPES[1::2]), *((f"gathered{IN}", s) for s in SHORT[::2])],
    ids=str,
)  # fmt: skip
def test_any_windows_bounds_and_types_are_exact(tmp_path, name, shape):
    changed = ({}, {"shifts": (31, 31), "clamp": (-90, 80)}, {"table": True}, {"element": "i16"})
    begun = (SHAPES + SHORT).index(shape)
    draw, cases = random.Random(shape[1]), []
    for layer in (layer_of(*shape, **changed[(begun + more) % len(changed)]) for more in (0, 1)):
        (variant,) = cheapest_first({name: sketch_of(layer, name)}, CORTEX_M55, mve_layers.UNCOMPARED)
        cases.append(layer.case(FAMILY, variant.first()))
        with suppress(RefusedError):
            cases.append(layer.case(FAMILY, Space((variant,)).sample(draw)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "changed", [{"tall": 6}, {"tall": 4}, {"tall": 1, "weights": "scratch"}, {"weights": "scratch", "block": 32},
                {"tile": "3x2", "together": 7}, {"tile": "7x1", "together": 7, "share": 1, "ahead": 1},
                {"tile": "1x4", "together": 1, "share": 1}, {"bias": "sums"},
                {"bias": "sums", "tile": "3x2", "together": 7, "share": 3, "repeats": 2}], ids=str
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


@pytest.mark.parametrize(
    "shape, changed",
    [(SHAPES[0], {}), (SHAPES[0], {"together": 6, "share": 2}), (SHAPES[1], {"tile": "1x4"}), (SHAPES[3], {}),
     (SHAPES[0], {"tile": "1x4", "together": 1, "share": 1}), (((1, 3, 3, 16), 32, (5, 5), {"pad": (2, 2, 2, 2)}), {})],
    ids=str,
)  # fmt: skip
def test_windows_in_place_take_the_memory_that_they_promise(tmp_path, shape, changed):
    layer = layer_of(*shape, shifts=(31, 31))
    what = sketch_of(layer, "strips_in_place")
    schedule = Schedule.of("strips_in_place", **{**IN_PLACE, **changed})
    assert what.promise(dict(schedule.knobs))["scratch"] == of_schedule(what, schedule, CORTEX_M55).scratch
    (outcome,) = run_cases([layer.case(FAMILY, schedule)], tmp_path)
    assert outcome.exact, outcome


@pytest.mark.parametrize(
    "name, changed",
    [*(("gathered", each) for each in ({}, {"held": 1, "ahead": 1}, {"tile": "1x2"}, {"tile": "2x2"}, {"tall": 3},
                                      {"block": 13, "tile": "2x3"}, {"block": 4, "tile": "3x1"})),
     ("strips", {"block": 8}), ("strips", {"block": 8, "tile": "2x2"}), (f"gathered{IN}", {})], ids=str
)  # fmt: skip
def test_an_iteration_of_all_channels_is_one_of_a_loop_over_tiles_of_pixels(tmp_path, name, changed):
    """One loop for all tiles takes fewer cycles than a loop over channels for each; pixels may be left."""
    knobs = {**GATHERED, "tile": "3x2", "together": 7, "tall": 1, "share": 1, **changed}
    shape = ((1, 9, 7, 16), knobs["block"], (2, 2)) if name == "strips" else ((1, 9, 7, 3), knobs["block"], (3, 3))
    layer = layer_of(*shape, {"pad": (1, 1, 1, 1)}, shifts=(31, 31))
    if name.endswith(IN):
        del knobs["tall"]
    repeats, what = knobs["block"] // tile_sizes(knobs["tile"])[1], sketch_of(layer, name)
    schedules = [Schedule.of(name, **knobs | {"repeats": n}) for n in (1, repeats)]
    channels, tiles = (of_schedule(what, each, CORTEX_M55) for each in schedules)
    assert "hardware loop sx" in listing(tiles.program)
    assert tiles.cycles < channels.cycles
    (outcome,) = run_cases([layer.case(FAMILY, schedules[1])], tmp_path)
    assert outcome.exact, outcome


def test_loads_of_a_masked_copy_stand_before_its_stores():
    """A load waits right behind a store, one with a mask, too."""
    layer = layer_of((1, 9, 8, 3), 16, (3, 3), {"pad": (1, 1, 1, 1)})
    what = sketch_of(layer, "gathered")
    text = of_schedule(what, Schedule.of("gathered", **GATHERED | {"together": 16}), CORTEX_M55).text
    copies = [line for line in text.splitlines() if "vldrb.u8 q" in line or "vstrbt.8" in line]
    first = next(at for at, line in enumerate(copies) if "vstrbt" in line and "vldrb" in copies[at - 1])
    assert all("vldrb" in line for line in copies[first - 3 : first])


@pytest.mark.parametrize(("stride", "together"), [((2, 2), True), ((2, 1), False)])
def test_four_short_rows_of_a_window_are_brought_by_one_instruction(stride, together):
    """Those that lie at even distances, as one of halves gathers them."""
    layer = layer_of((1, 13, 10, 1), 16, (5, 4), {"stride": stride})
    space = Space(tuple(cheapest_first({"gathered": sketch_of(layer, "gathered")}, CORTEX_M55, Site())))
    source = FAMILY.generate(layer.workload(FAMILY), space.default(), CORTEX_M55)
    assert ("vldrh.u16" in source.text) == together


def test_windows_are_read_in_place_where_a_strip_has_no_room():
    layer = layer_of((1, 16, 16, 16), 16, (3, 3), {"pad": (1, 1, 1, 1)})

    def names(**site) -> list[str]:
        return [v.name for v in Conv2d(site=Site(**site)).variants(layer.workload(FAMILY), CORTEX_M55)]

    assert names(constants=SLOW_MEMORY, most_scratch=1 << 14)[0] == "strips"
    assert names(most_scratch=448) == ["strips_in_place"]
    assert names() == ["strips_in_place"]


@pytest.mark.parametrize(
    "shape, channels, kernel, options, sides",
    [((1, 9, 7, 3), 16, (3, 3), {"pad": (1, 1, 1, 1)}, {"l": 1, "r": 1}),
     ((2, 12, 12, 3), 8, (3, 3), {"stride": (2, 2), "pad": (0, 1, 0, 1)}, {"r": 1}),
     ((1, 8, 12, 3), 16, (3, 3), {"stride": (2, 2), "pad": (1, 0, 1, 0)}, {"l": 1}),
     ((1, 11, 13, 2), 16, (5, 5), {"pad": (2, 2, 2, 2)}, {"l": 2, "r": 2}),
     ((1, 9, 12, 7), 17, (2, 3), {"dilation": (1, 2), "pad": (1, 0, 2, 2)}, {"l": 2, "r": 2}),
     ((1, 9, 5, 3), 16, (3, 5), {"pad": (1, 1, 2, 2)}, {"l": 2, "r": 2}),
     ((1, 9, 3, 3), 16, (3, 3), {"pad": (1, 1, 1, 1)}, {"l": 1, "r": 1})], ids=str
)  # fmt: skip
def test_windows_of_a_row_between_its_sides_are_copied_from_the_image(
    tmp_path, shape, channels, kernel, options, sides
):
    layer = layer_of(shape, channels, kernel, options, shifts=(31, 31))
    what = sketch_of(layer, "gathered_in_place")
    assert isinstance(what, GatheredSketch)
    columns = what.geometry.columns
    knobs = {**IN_PLACE, "tile": "3x2", "together": columns, "share": 1, "block": min(channels, 16)}
    schedule = Schedule.of("gathered_in_place", **knobs)
    made = of_schedule(what, schedule, CORTEX_M55)
    strip = what.strip(knobs)
    assert {side.own: side.windows for side in strip.sides} == sides
    assert strip.inner == columns - sum(sides.values())
    assert re.search(r"\(qv\w*_i\[0\], a\[", listing(made.program))
    assert what.promise(knobs)["scratch"] == made.scratch
    assert what.promise(knobs)["estimate"] == pytest.approx(made.cycles, rel=0.2)
    (outcome,) = run_cases([layer.case(FAMILY, schedule)], tmp_path)
    assert outcome.exact, outcome


def test_windows_at_a_side_are_never_copied_from_the_image():
    layer = layer_of((1, 11, 13, 2), 16, (5, 5), {"pad": (2, 2, 2, 2)})
    what = sketch_of(layer, "gathered_in_place")
    steps = list(what.steps({**IN_PLACE, "tile": "3x2", "together": 13, "share": 1}))
    before = steps[: steps.index("compute_at(P, qx_m)")]
    with pytest.raises(RefusedError, match="never lies in a"):
        replayed(what.program(), parse_steps("\n".join([*before, "in_place(P_l, i)"])))


def test_the_one_window_at_a_side_has_its_padding_before_all_rows():
    layer = layer_of((1, 9, 7, 3), 16, (3, 3), {"pad": (1, 1, 1, 1)})
    what = sketch_of(layer, "gathered_in_place")
    made = of_schedule(what, Schedule.of("", **{**IN_PLACE, "tile": "3x2", "together": 7, "share": 1}), CORTEX_M55)
    before, _, behind = listing(made.program).partition("for y < 9:")
    assert before.count("vdup.i8") == 2 and not {"P_l", "P_r"} & made.program.buffers.keys()
    assert behind.count("block qkyb < 1") == behind.count("block qky_m_r < 1") == 1


def test_deep_windows_are_copied_so_that_a_loop_goes_over_their_depth(tmp_path):
    layer = layer_of((1, 3, 4, 224), 16, (3, 3), {"pad": (1, 1, 1, 1)})
    default = layer.space(FAMILY, compared=True).default()
    assert default.variant == "gathered_in_place" and default["unroll"]
    (outcome,) = run_cases([layer.case(FAMILY, default)], tmp_path)
    assert outcome.exact, outcome


def test_an_image_without_padding_needs_no_strip():
    layer = layer_of((1, 6, 8, 16), 16, (3, 3), {})
    kernel = of_schedule(sketch_of(layer, "strips_in_place"), Schedule.of("", **IN_PLACE), CORTEX_M55)
    assert "P" not in kernel.program.buffers


def test_what_no_schedule_can_be_is_refused():
    layer = layer_of((1, 6, 7, 16), 16, (3, 3), {"pad": (1, 1, 1, 1)})
    what = sketch_of(layer, "strips")
    with pytest.raises(RefusedError, match=r"an iteration of \d+ instructions is too long"):
        what.promise(STRIPS | {"repeats": 8})
    with pytest.raises(RefusedError, match="windows of several rows do not stay"):
        what.promise(STRIPS | {"held": 1})
    with pytest.raises(RefusedError, match="3 pixels are not tiles of 2"):
        sketch_of(layer, "strips_in_place").promise({**IN_PLACE, "together": 3})
    short = layer_of((1, 40, 40, 3), 16, (3, 3), {"pad": (1, 1, 1, 1)})
    what = sketch_of(short, "gathered")
    with pytest.raises(RefusedError, match="so many windows take too much memory"):
        what.promise(STRIPS | {"tall": 16})
    with pytest.raises(RefusedError, match="41 pixels have no"):
        what.promise(STRIPS | {"tall": 1, "together": 41})


@pytest.mark.parametrize(
    "name, channels, knobs", [("strips", 16, STRIPS), ("strips_in_place", 16, IN_PLACE), ("gathered", 3, STRIPS)]
)
def test_steps_tree_and_c_of_one_schedule_stay_what_they_are(name, channels, knobs):
    layer = layer_of((1, 4, 4, channels), 16, (3, 3), {"pad": (1, 1, 1, 1)}, shifts=(31, 31))
    what = sketch_of(layer, name)
    kernel = of_schedule(what, Schedule.of(name, **knobs), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text(f"program_{name}.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
