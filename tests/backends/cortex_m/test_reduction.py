"""Reductions along the last axis under QEMU equal the reference model."""

from __future__ import annotations

import numpy as np
import pytest
from family_cases import Build, outcomes_of, task_of
from golden_files import assert_golden

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.nest.across import Rows, scheduled
from tosaic.backends.cortex_m.nest.nest import parse_trace
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


def test_the_c_of_one_schedule_stays_what_it_is():
    kernel = scheduled(Rows("vmaxv", 8, 8, 8, 64, -128), Schedule.of("rows", rows=2, ahead=1), PIPELINE)
    assert kernel.what.nest.replay(parse_trace("\n".join(map(str, kernel.nest.trace)))) == kernel.nest
    assert_golden("reduction.c", kernel.source("reduction"), "void reduction")


@pytest.mark.parametrize(
    ("what", "schedule", "message"),
    [
        (Rows("vmaxv", 8, 8, 8, 2048, -128), Schedule.of("rows", rows=2, ahead=0), "516 instructions is too long"),
        (Rows("vmaxv", 8, 8, 70000, 16, -128), Schedule.of("rows", rows=1, ahead=0), "does not count 70000 turns"),
        (Rows("vaddva", 8, 32, 3, 64, 0), Schedule.of("rows", rows=4, ahead=0), "`y` of 3 cannot be split by 4"),
        (
            Rows("vaddva", 8, 32, 3, 64, 0),
            Schedule.of("vectors", vectors=5, ahead=0),
            "`x` of 64 cannot be split by 80",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_verifier_says_what_is_illegal(what, schedule, message):
    with pytest.raises(BackendError, match=message):
        scheduled(what, schedule, PIPELINE)
