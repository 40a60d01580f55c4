"""Reductions along the last axis under QEMU equal the reference model."""

from __future__ import annotations

import numpy as np
import pytest
from board import M0, M4
from family_cases import Build, outcomes_of, task_of
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.reduction_sketch import RowsSketch, VectorsSketch
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule

CASES: dict[str, Build] = {}
for length in (1, 3, 16, 31, 64, 83):
    CASES[f"reduce_sum of {length} i32"] = lambda g, n=length: g.reduce("reduce_sum", g.input((2, 5, n), "i32"), 2)
    for e in ("i8", "i16", "i32"):
        for name in ("reduce_max", "reduce_min"):
            CASES[f"{name} of {length} {e}"] = lambda g, n=length, e=e, name=name: g.reduce(
                name, g.input((2, 5, n), e), 2, nan_mode="PROPAGATE"
            )
    for e in ("i8", "i16"):
        CASES[f"reduce_sum of {length} widened {e}"] = lambda g, n=length, e=e: g.reduce(
            "reduce_sum",
            g.rescale(g.input((2, 5, n), e), "i32", 1 << 30, 30, input_zero=-7 if e == "i8" else 0),
            2,
        )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("reduction",), tmp_path_factory.mktemp("reduction"), headroom=7, samples=2)


@pytest.mark.parametrize("name", CASES)
def test_schedules_equal_the_reference(name, outcomes):
    assert len(outcomes[name]) > 1
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


@pytest.mark.parametrize("bench", [M4, M0], ids=["DSP", "baseline"])
def test_cores_without_vectors_compute_the_same(tmp_path, bench):
    for name, found in outcomes_of(CASES, ("reduction",), tmp_path, headroom=7, samples=1, bench=bench).items():
        assert found
        assert not [str(outcome) for outcome in found if not outcome.exact], name


@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.reduce("reduce_max", g.input((3, 5, 7)), 1, nan_mode="PROPAGATE"),
        lambda g: g.reduce("reduce_sum", g.input((3, 5), "f32"), 1),
        lambda g: g.reduce("reduce_sum", g.rescale(g.input((3, 5)), "i32", 1 << 30, 29), 1),
        lambda g: g.reduce("reduce_max", g.const(np.arange(15).reshape(3, 5), "i8"), 1, nan_mode="PROPAGATE"),
    ],
)
def test_other_axes_f32_and_constants_are_left_to_the_generic_path(build):
    assert {variant.name for variant in task_of(build).space.variants} == {"linalg.loops"}


def test_steps_tree_and_c_of_one_schedule_stay_what_they_are():
    kernel = of_schedule(RowsSketch("add", "i8", 9, 35, 0), Schedule.of("rows", rows=2, ahead=1), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_reduction.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


@pytest.mark.parametrize(
    ("what", "numbers", "message"),
    [
        (RowsSketch("max", "i8", 8, 2048, 0), {"rows": 1, "ahead": 0}, "an iteration of 128 vectors is too long"),
        (RowsSketch("add", "i8", 3, 64, 0), {"rows": 4, "ahead": 0}, "`y` of 3 by 1 is not cut at 0"),
        (VectorsSketch("add", "i8", 3, 64, 0), {"vectors": 5, "ahead": 0}, "`k` of 64 by 1 is not cut at 0"),
        (
            VectorsSketch("add", "i8", 3, 64, 0),
            {"vectors": 4, "ahead": 1},
            "`k` is no hardware loop of several iterations",
        ),
        (RowsSketch("max", "i8", 70000, 16, 0), {"rows": 1, "ahead": 0}, "70000 iterations is too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(what, numbers, message):
    with pytest.raises(BackendError, match=message) as raised:
        of_schedule(what, Schedule.of("rows", **numbers), CORTEX_M55)
    assert raised.value.what
