"""The generated MATMUL kernels equal the reference model to the bit."""

from __future__ import annotations

import random
from contextlib import suppress

import mve_layers
import numpy as np
from board import run_cases
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.matmul import Matmul
from tosaic.backends.cortex_m.program.kernel import built
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.tuner.space import Schedule, Space

FAMILY = Matmul()


def test_random_sizes_zero_points_and_schedules_are_exact(tmp_path):
    rng, choose = np.random.default_rng(0), random.Random(0)
    cases = []
    for _ in range(8):
        batch, rows, depth, columns = (int(v) for v in rng.integers(1, (4, 14, 50, 40)))
        clamp = (-70, 80) if rng.integers(2) else None
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, clamp=clamp, table=bool(rng.integers(2)))
        cases.append(layer.case(FAMILY))
        cases.append(layer.case(FAMILY, layer.space(FAMILY).sample(choose)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_a_transposed_operand_is_read_where_it_lies(tmp_path):
    """Queries with keys: of a part of a vector, of vectors, of more and less than those, in blocks and iterations of
    any number; with bounds, a table, and a scale by column."""
    rng, choose, cases = np.random.default_rng(3), random.Random(0), []
    for batch, rows, depth, columns in [
        (2, 2, 8, 40), (1, 4, 4, 16), (2, 4, 16, 300), (1, 3, 24, 20), (1, 1, 48, 130), (1, 2, 37, 19), (1, 2, 64, 16),
    ]:  # fmt: skip
        kind: dict = choose.choice(({}, {"clamp": (-70, 80)}, {"table": True}, {"per_column": True}))
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, transposed=True, **kind)
        first = layer.space(FAMILY).variants[0]
        assert first.name == "in_place"
        space = Space((first,))
        cases += [layer.case(FAMILY, schedule) for schedule in (space.default(), space.sample(choose))]
    for batch, rows, depth, columns in [(2, 7, 8, 24), (1, 9, 20, 33), (2, 5, 16, 10), (1, 2, 12, 40)]:
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, clamp=(-70, 80), transposed=True)
        cases += [layer.case(FAMILY), layer.case(FAMILY, layer.space(FAMILY).sample(choose))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_deep_columns_are_read_where_they_lie(tmp_path):
    """Values with what attention says of each place: an iteration of four columns, of one, or of some vectors of one,
    copies nothing, and is short."""
    rng, cases = np.random.default_rng(5), []
    for batch, rows, depth, columns in [
        (2, 2, 512, 8),
        (2, 2, 128, 16),
        (1, 2, 512, 48),
        (1, 3, 256, 20),
        (1, 1, 64, 37),
    ]:
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, transposed=True)
        (first, *_), workload = layer.space(FAMILY, compared=True).variants, layer.workload(FAMILY)
        assert first.name == "in_place"
        best = Schedule.of(first.name, **{name: choices[0] for name, choices in first.knobs.items()})
        deep = {**dict(best.knobs), "held": 0, "ahead": 0}
        schedules = [
            best,
            *(Schedule.of(first.name, **deep | {"unroll": n}) for n in (1, 2) if first.legal(deep | {"unroll": n})),
        ]
        assert len(schedules) == 3
        assert FAMILY.features(workload, best, CORTEX_M55)["scratch"] < columns * depth
        assert len(FAMILY.generate(workload, best, CORTEX_M55).text.splitlines()) < 400
        cases += [layer.case(FAMILY, schedule) for schedule in schedules]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_rows_with_a_zero_point_of_0_need_no_sums_of_columns(tmp_path):
    """Of every variant: depths of a part of a vector, of vectors, and of more; with bounds, tables, scales by column,
    and results that fit 16 bits."""
    rng, choose, cases = np.random.default_rng(8), random.Random(0), []
    for batch, rows, depth, columns, kind in [
        (2, 2, 8, 64, {"scale": (5 << 20, 31)}), (1, 4, 4, 16, {"table": True}), (2, 4, 16, 300, {}),
        (1, 3, 24, 20, {"clamp": (-70, 80)}), (1, 1, 48, 130, {"per_column": True}), (1, 2, 37, 19, {}),
        (2, 9, 16, 20, {"scale": (5 << 20, 31)}), (1, 12, 48, 16, {}), (1, 9, 20, 33, {"table": True}),
        (1, 2, 512, 8, {}), (1, 5, 40, 1, {}),
    ]:  # fmt: skip
        for transposed in (True, False):
            layer = mve_layers.matmul(rng, batch, rows, depth, columns, transposed=transposed, centered=True, **kind)
            for variant in layer.space(FAMILY).variants:
                space = Space((variant,))
                for schedule in (space.default(), space.sample(choose)):
                    with suppress(RefusedError):  # as below
                        cases.append(layer.case(FAMILY, schedule))
    assert len(cases) > 60
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_scores_of_rows_with_a_zero_point_of_0_take_a_quarter_less():
    cycles = []
    for centered in (False, True):
        rng = np.random.default_rng(9)
        layer = mve_layers.matmul(rng, 1, 2, 8, 128, transposed=True, scale=(5 << 20, 31), centered=centered)
        kernel = built(
            FAMILY.vector_sketches(layer.workload(FAMILY))["in_place"],
            layer.space(FAMILY, compared=True).default().knobs,
            CORTEX_M55,
        )
        assert ("Z[" in listing(kernel.program)) is not centered
        cycles.append(kernel.cycles)
    assert cycles[1] < 0.75 * cycles[0], cycles


def test_sizes_at_the_edge_are_exact(tmp_path):
    """One row, column or element of depth; columns of which one is left; columns that are deep; scales by column."""
    rng, choose, cases = np.random.default_rng(4), random.Random(0), []
    for batch, rows, depth, columns in [
        (1, 2, 3, 1), (2, 3, 1, 20), (1, 5, 40, 1), (1, 3, 20, 17), (1, 2, 24, 33), (1, 2, 1100, 18), (1, 1, 16, 16),
    ]:  # fmt: skip
        for transposed in (False, True):
            layer = mve_layers.matmul(
                rng, batch, rows, depth, columns, transposed=transposed, clamp=(-90, 60), per_column=True
            )
            cases.append(layer.case(FAMILY))
            with suppress(RefusedError):  # a sketch promises what may be too long for a hardware loop
                cases.append(layer.case(FAMILY, layer.space(FAMILY).sample(choose)))
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_columns_that_stay_in_registers_are_exact(tmp_path):
    rng, choose, cases = np.random.default_rng(6), random.Random(0), []
    for batch, rows, depth, columns, scale in [
        (2, 9, 16, 20, None),
        (1, 33, 8, 24, (5 << 20, 31)),
        (2, 5, 4, 8, (9 << 20, 31)),
        (1, 12, 48, 16, (3 << 20, 31)),
    ]:  # fmt: skip
        layer = mve_layers.matmul(rng, batch, rows, depth, columns, transposed=True, scale=scale)
        (variant,) = (v for v in layer.space(FAMILY).variants if v.name == "column_stationary")
        space = Space((variant,))
        cases += [layer.case(FAMILY, schedule) for schedule in (space.default(), space.sample(choose))]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


def test_an_iteration_of_all_columns_is_one_of_a_loop_over_tiles_of_rows(tmp_path):
    knobs = {
        "tile": "3x2", "together": 11, "share": 1, "block": 16, "weights": "params", "unroll": 0, "held": 1,
        "bias": "results", "epilogue_unroll": 1, "ahead": 1, "epilogue_ahead": 0,
    }  # fmt: skip
    layer = mve_layers.matmul(np.random.default_rng(7), 2, 11, 32, 16)
    what = FAMILY.vector_sketches(layer.workload(FAMILY))["rows"]
    schedules = [Schedule.of("rows", **knobs, repeats=repeats) for repeats in (1, 8)]
    columns, tiles = (built(what, each.knobs, CORTEX_M55) for each in schedules)
    assert "hardware loop sx" in listing(tiles.program)
    assert tiles.cycles < columns.cycles
    (outcome,) = run_cases([layer.case(FAMILY, schedules[1])], tmp_path)
    assert outcome.exact, outcome


def test_one_scale_is_one_number():
    rng = np.random.default_rng(5)
    params = [len(mve_layers.matmul(rng, 1, 8, 16, columns).case(FAMILY).source.params) for columns in (32, 512)]
    assert params[0] == params[1] < 128


def test_zero_points_do_not_change_the_code():
    rng = np.random.default_rng(1)
    sources = [mve_layers.matmul(rng, 2, 8, 16, 24).case(FAMILY).source for _ in range(2)]
    assert sources[0].symbol == sources[1].symbol
    assert sources[0].params != sources[1].params


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    layer = mve_layers.matmul(np.random.default_rng(0), 1, 7, 20, 22)
    schedule = layer.space(FAMILY, compared=True).default()
    (what,) = FAMILY.vector_sketches(layer.workload(FAMILY)).values()
    kernel = built(what, schedule.knobs, CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_activations.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


def test_swapped_operands_are_not_mistaken():
    layer = mve_layers.matmul(np.random.default_rng(2), 1, 8, 8, 8, swap=True)
    assert FAMILY.match(layer.function) is None
