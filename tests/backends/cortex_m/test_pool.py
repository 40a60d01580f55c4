"""Pooling kernels under QEMU equal the reference model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from board import M3, M4
from family_cases import Build, outcomes_of, task_of
from golden_files import assert_golden_text
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import Workload
from tosaic.backends.cortex_m.kernels.pool import Pool
from tosaic.backends.cortex_m.program.kernel import built
from tosaic.backends.cortex_m.program.schedule import print_steps
from tosaic.backends.cortex_m.program.sharing import shared_reductions
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.support.mlir import functions

CASES: dict[str, Build] = {
    "average 2x2": lambda g: g.pool("avg", g.input((1, 8, 8, 16)), (2, 2), (2, 2), zero=-128, out_zero=-128),
    "average 15x17": lambda g: g.pool("avg", g.input((1, 15, 17, 9)), (15, 17), zero=-128),
    "average 16x16": lambda g: g.pool("avg", g.input((1, 16, 16, 9)), (16, 16), zero=-128),
    "average 1x1": lambda g: g.pool("avg", g.input((1, 4, 4, 16)), (1, 1), zero=-128, out_zero=4),
}
for e in ("i8", "i16"):
    zero, out_zero = (5, -3) if e == "i8" else (0, 0)
    for c in (3, 40) if e == "i8" else (20,):
        CASES[f"maximum {e} {c}"] = lambda g, e=e, c=c: g.pool(
            "max", g.input((1, 7, 6, c), e), (3, 3), (2, 2), (1, 1, 1, 0)
        )
        CASES[f"maximum {e} {c}, nine rows"] = lambda g, e=e, c=c: g.pool(
            "max", g.input((2, 9, 9, c), e), (9, 9), (1, 1), (4, 4, 4, 4)
        )
        CASES[f"average {e} {c}, windows that overlap"] = lambda g, e=e, c=c, z=zero, o=out_zero: g.pool(
            "avg", g.input((1, 7, 6, c), e), (3, 2), zero=z, out_zero=o
        )
        CASES[f"average {e} {c}, padded"] = lambda g, e=e, c=c, z=zero, o=out_zero: g.pool(
            "avg", g.input((2, 7, 6, c), e), (3, 3), pad=(1, 1, 1, 1), zero=z, out_zero=o
        )
        CASES[f"average {e} {c}, padded unevenly"] = lambda g, e=e, c=c, z=zero, o=out_zero: g.pool(
            "avg", g.input((1, 8, 9, c), e), (5, 4), (2, 3), (2, 1, 0, 1), zero=z, out_zero=o
        )
        CASES[f"average {e} {c}"] = lambda g, e=e, c=c, z=zero, o=out_zero: g.pool(
            "avg", g.input((2, 7, 6, c), e), (7, 6), zero=z, out_zero=o
        )
for c in (7, 40):
    CASES[f"columns i8 to i8 {c}"] = lambda g, c=c: g.requantize(
        g.conv2d(g.input((2, 13, c, 1)), np.ones((1, 13, 1, 1)), np.zeros(1), input_zero=9), "i8", 0.11, output_zero=-5
    )
    CASES[f"columns i8 to i16 {c}"] = lambda g, c=c: g.rescale(
        g.conv2d(g.input((2, 64, c, 1)), np.ones((1, 64, 1, 1)), np.zeros(1), input_zero=-128), "i16", 1 << 30, 30
    )
    CASES[f"columns i16 to i8 {c}"] = lambda g, c=c: g.requantize(
        g.conv2d(g.input((2, 12, c, 1), "i16"), np.ones((1, 4, 1, 1)), np.zeros(1), stride=(4, 1)), "i8", 9e-4
    )
    CASES[f"channels i8 to i8 {c}"] = lambda g, c=c: g.requantize(
        g.depthwise_conv2d(g.input((2, 7, 6, c)), np.ones((3, 2, c, 1)), np.zeros(c), stride=(2, 1)), "i8", 0.2
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("pool",), tmp_path_factory.mktemp("pool"), samples=1)


@pytest.mark.parametrize("name", CASES)
def test_schedules_equal_the_reference(name, outcomes):
    assert len(outcomes[name]) > 1
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


@pytest.mark.parametrize("bench", [M4, M3], ids=["DSP", "scalar"])
def test_cores_without_vectors_compute_the_same(tmp_path, bench):
    for name, found in outcomes_of(CASES, ("pool",), tmp_path, samples=1, bench=bench).items():
        assert found
        assert not [str(outcome) for outcome in found if not outcome.exact], name


def test_the_maximum_of_a_constant_is_left_to_the_generic_path():
    image = np.arange(7 * 6 * 5).reshape(1, 7, 6, 5) % 100
    task = task_of(lambda g: g.pool("max", g.const(image, "i8"), (3, 3), (2, 2), (1, 1, 1, 0)))
    assert {variant.name for variant in task.space.variants} == {"linalg.loops"}


@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.conv2d(g.input((1, 4, 4, 1)), np.full((1, 4, 1, 1), 2), np.zeros(1)),
        lambda g: g.conv2d(g.input((1, 4, 4, 1)), np.ones((1, 4, 1, 1)), np.ones(1)),
        lambda g: g.conv2d(g.input((1, 4, 4, 1)), np.ones((1, 4, 2, 1)), np.zeros(1)),
        lambda g: g.conv2d(g.input((1, 4, 4, 2)), np.ones((1, 4, 1, 2)), np.zeros(1)),
        lambda g: g.conv2d(g.input((1, 4, 4, 1)), np.ones((1, 4, 1, 1)), np.zeros(1), pad=(1, 1, 0, 0)),
    ],
    ids=["of twos", "with a bias", "two columns", "two channels", "padded"],
)
def test_other_convolutions_are_no_pools(build):
    task = task_of(lambda g: g.requantize(build(g), "i8", 0.1))
    assert not any(variant.name.startswith("pool.") for variant in task.space.variants)


TILED = {"hardware_loop": "channels", "vectors": 1, "rows": 1, "columns": 2, "ahead": 2}


def _workload(build: Build) -> Workload:
    graph = Graph()
    (function,) = functions(graph.module(build(graph))).values()
    found = Pool().match(function)
    assert found is not None
    return found


def _maximum(g: Graph):
    return g.pool("max", g.input((1, 9, 9, 64)), (3, 3), (2, 2))


def _built(build: Build, variant: str, **knobs: int | str):
    what = Pool().vector_sketches(_workload(build))[variant]
    return built(what, tuple(sorted(knobs.items())), CORTEX_M55)


def test_steps_tree_and_c_of_one_pool_stay_what_they_are():
    kernel = _built(_maximum, "tiled", **TILED)
    about = f"instructions: {kernel.instructions}, cycles: {kernel.cycles}, scratch: {kernel.scratch}"
    text = f"{print_steps(kernel.steps)}\n{listing(kernel.program)}\n{about}\n{kernel.text}"
    assert_golden_text("program_pool.txt", text)


def test_neighbors_share_what_their_windows_have_in_common():
    """Two windows of 3 x 3 side by side: 12 loads, 2 joins in each of 4 columns, and 3 of the columns."""
    made = shared_reductions([(0, 1, 2)], [(0, 1, 2), (1, 2, 3)])
    assert sum(each.halves is None for each in made) == 12
    assert sum(each.halves is not None for each in made) == 11
    known = set()
    for each in made:
        assert known.issuperset(each.halves or ())
        known.add(each.part)


@pytest.mark.parametrize(
    ("variant", "knobs", "message"),
    [
        ("tiled", {"rows": 3, "columns": 4, "vectors": 2}, "24 windows of 9 are too much to write out"),
        ("tiled", {"vectors": 5}, "64 channels have no iterations of 80"),
        ("tiled", {"hardware_loop": "columns", "columns": 4}, "columns have no iterations"),
        ("stepped", {}, "no window reaches beyond the image"),
    ],
    ids=str,
)
def test_schedules_are_refused_with_a_reason(variant, knobs, message):
    with pytest.raises(RefusedError, match=message):
        _built(_maximum, variant, **{**TILED, **knobs})


def test_there_is_something_to_decide():
    for build in (
        lambda g: g.pool("max", g.input((1, 33, 33, 64)), (3, 3), (2, 2)),
        lambda g: g.pool("avg", g.input((1, 8, 8, 64)), (2, 2), (2, 2)),
    ):
        space = task_of(build, ("pool",)).space
        assert {variant.name for variant in space.variants} >= {"pool.tiled", "pool.walked"}
        assert sum(math.prod(map(len, variant.knobs.values())) for variant in space.variants) >= 200
