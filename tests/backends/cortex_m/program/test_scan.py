"""A slice of the long scans: no step that is legal changes what a program puts out, none of a schedule is ignored."""

from __future__ import annotations

import random

import pytest

from benchmarks import nest_fuzz
from benchmarks.step_scan import (
    CORTEX_M3,
    CORTEX_M4,
    CORTEX_M55,
    Tried,
    printed,
    run_on_board,
    runnable,
    scanned,
    shipped_schedules,
    summary,
    walked,
)
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, replayed
from tosaic.backends.cortex_m.program.text import listing, parse_program


@pytest.fixture(scope="module")
def shipped():
    return list(shipped_schedules())


@pytest.mark.parametrize("seed", range(16))
def test_steps_on_random_nests_change_no_outputs(seed):
    found = nest_fuzz.walked(random.Random(seed))
    assert not found.wrong, "\n".join([found.wrong, *map(str, found.steps), listing(found.nest)])
    assert found.steps


def test_each_sketch_has_a_schedule_on_each_core(shipped):
    names = {
        "movement",
        "conv2d 3x3",
        "conv2d 1x1",
        "dense",
        "depthwise",
        "matmul",
        "half matmul",
        "long matmul",
        "max pool",
        "average pool",
        "reduction",
        "resize",
        "rows read",
        "rows written",
        "rows shared",
    }
    found = {f"{core.name} {name}" for core in (CORTEX_M4, CORTEX_M3) for name in names}
    found |= {f"{CORTEX_M4.name} {name}" for name in ("float conv2d", "float depthwise", "calls", "turns", "masked")}
    vectors = {
        "pixels",
        "weight_stationary",
        "strips",
        "strips_in_place",
        "gathered",
        "gathered_in_place",
        "halves",
        "long matmul",
        "parts",
        "columns",
        "row",
        "rows",
        "vectors",
        "movement",
        "rows read",
        "rows written",
        "rows shared",
        "tiled",
        "walked",
        "stepped",
        "outer",
        "spatial_tiles",
        "space_to_depth",
        "lined",
        "lined floats",
        "lined bytes",
        "calls",
        "turns",
        "masked",
    }
    assert {one.name for one in shipped} == found | {f"cortex-m55 {name}" for name in vectors}


def test_steps_more_are_refused_or_work(shipped, tmp_path):
    rng = random.Random(0)
    found = [each for one in shipped for each in scanned(one, 1000, 0.012, rng)]
    assert_sound(found)
    assert sum(each.verdict == "works" for each in found) * 8 >= len(found)
    for core in (CORTEX_M4, CORTEX_M3, CORTEX_M55):
        works = [each for each in runnable(found) if each.shipped.core is core]
        (tmp_path / core.name).mkdir()
        assert run_on_board(rng.sample(works, min(12, len(works))), tmp_path / core.name).wrong == []


def test_walks_of_several_steps_are_refused_or_work(shipped):
    rng = random.Random(2)
    found = [walked(one, rng) for one in shipped]
    assert_sound(found)
    assert sum(each.verdict == "works" for each in found) * 2 >= len(found)


def test_constants_hold_for_the_schedules_that_are_scanned(shipped):
    assert [one.name for one in shipped if printed(one, replayed(one.program, one.steps)) is None] == []


def assert_sound(found: list[Tried]) -> None:
    result = summary(found, [])
    assert result["faults"] == []
    assert all(each.why for each in found if each.verdict == "refused")


SUM = """
a: i32[5] in in
out: i32[5] in out
for z < 5:
  out[z] = 0
for x < 5:
  out[x] += a[x]
"""


def test_a_fault_of_a_primitive_is_found(monkeypatch):
    split = PRIMITIVES.find("split")
    monkeypatch.setattr(nest_fuzz, "random_nest", lambda rng: parse_program(SUM))
    monkeypatch.setattr(nest_fuzz, "LIKELY", ("split",))
    assert {nest_fuzz.walked(random.Random(seed)).wrong for seed in range(4)} == {""}
    monkeypatch.setattr(f"{split.__module__}.why_not_repeatable", lambda program, loop: "")
    assert "other outputs" in {nest_fuzz.walked(random.Random(seed)).wrong for seed in range(4)}
