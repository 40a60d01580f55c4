"""Reductions along the last axis: every schedule, under QEMU, equals the reference model."""

from __future__ import annotations

import numpy as np
import pytest
from family_cases import Build, outcomes_of, task_of

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
    return outcomes_of(CASES, ("reduction",), tmp_path_factory.mktemp("reduction"), headroom=7)


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_equals_the_reference(name, outcomes):
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
