"""Bilinear resizing kernels: every schedule, under QEMU, equals the reference model."""

from __future__ import annotations

import pytest
from family_cases import Build, outcomes_of, task_of
from tosa_graphs import Graph

from tosaic.support.mlir import ir


def resized(g: Graph, shape, scale, offset, border, real: float = 1 / 16, **rescale) -> ir.Value:
    return g.requantize(g.resize(g.input(shape), "BILINEAR", scale, offset, border), "i8", real, **rescale)


CENTERED = ((4, 2, 4, 2), (-1, -1), (1, 1))
CASES: dict[str, Build] = {
    f"twice, {c} channels": lambda g, c=c: resized(g, (2, 5, 7, c), *CENTERED) for c in (1, 3, 8, 13, 24)
}
CASES |= {
    "other rows than columns": lambda g: resized(g, (1, 4, 6, 10), (6, 2, 3, 1), (-2, 0), (2, 0), 1 / 18),
    "smaller": lambda g: resized(g, (1, 9, 12, 5), (2, 4, 2, 4), (1, 1), (1, -1), 1 / 4),
    "corners": lambda g: resized(g, (1, 4, 8, 16), (7, 3, 15, 7), (0, 0), (0, 0), 1 / 105),
    "far beyond the edges": lambda g: resized(g, (1, 3, 3, 4), (4, 1, 4, 1), (-4, 9), (3, 3)),
    "other formats": lambda g: resized(g, (1, 6, 4, 20), *CENTERED, 0.0391, output_zero=17),
    "the widest sums": lambda g: resized(g, (1, 3, 4, 8), (15, 5, 17, 1), (0, 0), (0, 0), 1 / 255),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("resize",), tmp_path_factory.mktemp("resize"))


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_equals_the_reference(name, outcomes):
    assert len(outcomes[name]) == 2
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "build",
    [
        lambda g: resized(g, (1, 3, 4, 8), (16, 16, 16, 16), (0, 0), (0, 0), 1 / 256),
        lambda g: g.resize(g.input((1, 4, 4, 8)), "BILINEAR", *CENTERED),
        lambda g: g.requantize(g.resize(g.input((1, 4, 4, 8)), "NEAREST_NEIGHBOR", *CENTERED), "i8", 0.5),
    ],
    ids=["sums of 16 bits and more", "no rescale", "nearest"],
)
def test_others_are_left_to_the_generic_path(build):
    assert {variant.name for variant in task_of(build).space.variants} == {"linalg.loops"}
