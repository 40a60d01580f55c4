"""Bilinear resizing kernels under QEMU equal the reference model."""

from __future__ import annotations

import numpy as np
import pytest
from board import M0, M3, M4, M55, Case, run_cases
from family_cases import Build, evaluate_all, outcomes_of, task_of
from golden_files import assert_golden_text
from tosa_graphs import Graph

from tosaic.backends.cortex_m.kernel import ANYWHERE
from tosaic.backends.cortex_m.program.resizing import NarrowScale
from tosaic.backends.reference.bounds import beyond_bounds
from tosaic.support.mlir import functions, ir, parse
from tosaic.tuner.space import Schedule


def resized(g: Graph, shape, scale, offset, border, real: float = 1 / 16, **rescale) -> ir.Value:
    return g.requantize(g.resize(g.input(shape), "BILINEAR", scale, offset, border), "i8", real, **rescale)


CENTERED = ((4, 2, 4, 2), (-1, -1), (1, 1))
CASES: dict[str, Build] = {
    f"twice, {c} channels": lambda g, c=c: resized(g, (2, 5, 9, c), *CENTERED) for c in (1, 3, 8, 13, 24)
}
CASES |= {
    "other rows than columns": lambda g: resized(g, (1, 4, 6, 10), (6, 2, 3, 1), (-2, 0), (2, 0), 1 / 18),
    "smaller": lambda g: resized(g, (1, 9, 12, 5), (2, 4, 2, 4), (1, 1), (1, -1), 1 / 4),
    "corners": lambda g: resized(g, (1, 4, 8, 16), (7, 3, 15, 7), (0, 0), (0, 0), 1 / 105),
    "far beyond the edges": lambda g: resized(g, (1, 3, 3, 4), (4, 1, 4, 1), (-4, 9), (3, 3)),
    "other formats": lambda g: resized(g, (1, 6, 4, 20), *CENTERED, 0.0391, output_zero=17),
    "corners, sums of 32 bits": lambda g: resized(g, (1, 8, 16, 5), (30, 14, 62, 30), (0, 0), (0, 0), 1 / 1860),
    "many channels, sums of 32 bits": lambda g: resized(
        g, (2, 6, 5, 24), (46, 12, 58, 10), (-17, -24), (5, 4), 1 / 2668
    ),
    "the largest weights": lambda g: resized(g, (1, 3, 2, 8), (255, 128, 999, 500), (0, 0), (2, 1), 1 / 254745),
    "the widest sums": lambda g: resized(g, (1, 3, 4, 8), (15, 5, 17, 1), (0, 0), (0, 0), 1 / 255),
}


HALVES: dict[str, Build] = {
    "halves": lambda g: halves(g, (2, 5, 9, 3), *CENTERED),
    "halves, corners": lambda g: halves(g, (1, 4, 8, 16), (7, 3, 15, 7), (0, 0), (0, 0), 1 / 105),
    "halves, the widest sums": lambda g: halves(g, (1, 3, 4, 8), (255, 85, 257, 257), (0, 0), (0, 0), 1 / 65535),
}
NEAREST: dict[str, Build] = {
    f"nearest, {c} of {e}": lambda g, c=c, e=e, r=ratio: g.resize(g.input((2, 5, 9, c), e), "NEAREST_NEIGHBOR", *r)
    for c, e, ratio in (
        (1, "i8", CENTERED),
        (3, "i16", ((7, 3, 15, 7), (0, 0), (2, 6))),
        (20, "i8", ((2, 4, 2, 4), (1, 1), (1, 1))),
        (4, "f32", ((4, 1, 4, 1), (-4, 9), (3, 3))),
    )
}
FLOATS: dict[str, Build] = {
    "twice": lambda g: g.resize(g.input((1, 5, 7, 3), "f32"), "BILINEAR", *CENTERED),
    "smaller": lambda g: g.resize(g.input((2, 9, 12, 8), "f32"), "BILINEAR", (2, 4, 2, 4), (1, 1), (1, -1)),
}


def halves(g: Graph, shape, scale, offset, border, real: float = 1 / 16) -> ir.Value:
    return g.requantize(g.resize(g.input(shape, "i16"), "BILINEAR", scale, offset, border), "i16", real)


@pytest.mark.parametrize("bench", [M55, M4, M3, M0], ids=["MVE", "DSP", "scalar", "thumb"])
def test_schedules_equal_the_reference(tmp_path, bench):
    outcomes = outcomes_of({**CASES, **HALVES, **NEAREST}, ("resize",), tmp_path, samples=2, bench=bench)
    assert [str(each) for found in outcomes.values() for each in found if not each.exact] == []


@pytest.mark.parametrize("bench", [M55, M4, M0], ids=["MVE", "fp", "no fp"])
def test_floats_stay_within_bounds(tmp_path, bench):
    expected, tasks = evaluate_all(FLOATS), {name: task_of(FLOATS[name], ("resize",), bench.core) for name in FLOATS}
    cases = [
        Case(task.generate(schedule), expected[name][0], [expected[name][1]], name)
        for name, task in tasks.items()
        for schedule in task.space.schedules()
    ]
    for outcome in run_cases(cases, tmp_path, bench=bench):
        module = parse(tasks[outcome.case.name].module)
        (function,) = functions(module).values()
        assert beyond_bounds(function, outcome.case.inputs, outcome.outputs) == "", outcome


def test_rows_that_are_blended_once_take_half_of_the_instructions(tmp_path):
    case: dict[str, Build] = {"twice": lambda g: resized(g, (1, 8, 8, 16), *CENTERED)}
    inputs, output = evaluate_all(case)["twice"]
    tasks = [task_of(case["twice"], (family,), M4.core, ANYWHERE) for family in ("resize", "linalg")]
    cases = [Case(task.generate(task.default()), inputs, [output]) for task in tasks]
    own, generic = run_cases(cases, tmp_path, bench=M4)
    assert own.exact and generic.exact
    assert own.instructions < 0.5 * generic.instructions


@pytest.mark.parametrize("seed", range(20))
def test_a_narrow_scale_gives_what_a_rescale_gives(seed):
    rng = np.random.default_rng(seed)
    weight, zero = int(rng.integers(1, 500)), int(rng.integers(-20, 20))
    multiplier = int(rng.integers(1 << 30, (1 << 31) - 1)) if seed % 2 else 1 << 30
    shift = 31 + int(weight).bit_length() - seed % 3
    sums = range(-128 * weight, 127 * weight + 1)
    found = NarrowScale.found(multiplier, shift, zero, sums, range(-128, 128))
    wanted = [((each * multiplier + (1 << (shift - 1))) >> shift) + zero for each in sums]
    if found is None:
        assert multiplier != 1 << 30 or min(wanted) < -128 or max(wanted) > 127
        return
    assert [(each * found.factor + found.added) >> found.bits for each in sums] == wanted
    assert max(map(abs, sums)) * found.factor + abs(found.added) < 1 << 31


@pytest.mark.parametrize(
    "build",
    [
        lambda g: halves(g, (1, 3, 4, 8), (256, 256, 256, 16), (0, 0), (0, 0), 1 / 65536),
        lambda g: g.resize(g.input((1, 4, 4, 8)), "BILINEAR", *CENTERED),
    ],
    ids=["sums beyond int32", "no rescale"],
)
def test_others_are_left_to_the_generic_path(build):
    assert {variant.name for variant in task_of(build).space.variants} == {"linalg.loops"}


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    task = task_of(lambda g: resized(g, (1, 4, 4, 5), *CENTERED), ("resize",))
    schedule = Schedule.of("resize.gathers", vectors=2, ahead=2)
    steps = "".join(f"{step}\n" for step in task.trace(schedule))
    assert_golden_text("program_gathers.txt", f"{steps}\n{task.generate(schedule).text}")


def test_rows_of_few_elements_are_not_gathered():
    task = task_of(
        lambda g: g.requantize(g.resize(g.input((1, 5, 9, 1)), "BILINEAR", (2, 4, 2, 4), (0, 0), (0, 0)), "i8", 1 / 4),
        ("resize",),
    )
    assert task.default().variant == "resize.program"
