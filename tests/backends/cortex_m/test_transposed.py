"""Transposed convolutions, a row at a time, under QEMU equal the reference model."""

from __future__ import annotations

import numpy as np
import pytest
from board import M3, M4
from family_cases import Build, outcomes_of, task_of
from tosa_graphs import Graph

from tosaic.backends.cortex_m.task import KernelTask
from tosaic.support.mlir import functions, ir

Sizes = tuple[int, ...]


def transposed(
    g: Graph,
    shape: Sizes,
    weights: Sizes,
    stride: Sizes,
    out_pad: Sizes = (0, 0, 0, 0),
    *,
    element: str = "i8",
    per_channel: bool = False,
    clamp: tuple[int, int] | None = None,
    table: bool = False,
) -> ir.Value:
    """TRANSPOSE_CONV2D of an NHWC `shape` by `weights` (outputs, rows, columns, channels), with what comes behind."""
    rng = np.random.default_rng(sum(shape) + sum(weights))
    zero = 0 if element == "i16" else int(rng.integers(-128, 128))
    kernel, bias = rng.integers(-128, 128, weights), rng.integers(-4000, 4000, weights[0])
    y = g.transpose_conv2d(g.input(shape, element), kernel, bias, stride=stride, out_pad=out_pad, input_zero=zero)
    scale = 1 / (64 * weights[1] * weights[2] * weights[3])
    scales = np.linspace(0.5, 1.5, weights[0]) * scale if per_channel else scale
    y = g.requantize(y, element, scales, output_zero=0 if element == "i16" else 9)
    y = g.clamp(y, *clamp) if clamp else y
    return g.table(y, rng.integers(-128, 128, 256)) if table else y


_CROPPED = (-1, 0, -1, 0)
CASES: dict[str, Build] = {
    "as large as its stride": lambda g: transposed(g, (1, 5, 6, 8), (4, 2, 2, 8), (2, 2)),
    "as large as its stride, aligned": lambda g: transposed(g, (2, 5, 4, 16), (8, 2, 2, 16), (2, 2)),
    "stride one down, aligned": lambda g: transposed(g, (2, 5, 4, 16), (16, 1, 2, 16), (1, 2)),
    "twice as large, cropped": lambda g: transposed(g, (1, 6, 5, 16), (8, 4, 4, 16), (2, 2), (-1, -1, -1, -1)),
    "three by stride two": lambda g: transposed(g, (2, 5, 7, 5), (3, 3, 3, 5), (2, 2), _CROPPED, per_channel=True),
    "unequal strides": lambda g: transposed(g, (1, 4, 9, 12), (7, 4, 3, 12), (3, 1)),
    "the other way round": lambda g: transposed(g, (1, 9, 4, 12), (7, 3, 5, 12), (1, 4), _CROPPED, clamp=(-50, 60)),
    "smaller than its stride": lambda g: transposed(g, (1, 4, 4, 8), (5, 2, 1, 8), (3, 2), (0, 1, 0, 1)),
    "beyond the edges": lambda g: transposed(g, (1, 3, 3, 4), (4, 2, 3, 4), (2, 2), (5, 3, 4, 7), table=True),
    "stride one": lambda g: transposed(g, (1, 6, 6, 8), (8, 3, 3, 8), (1, 1), (-2, -2, -1, 0)),
    "cropped to less than a group": lambda g: transposed(g, (1, 3, 4, 8), (4, 5, 5, 8), (4, 4), (-4, -3, -3, -4)),
    "int16": lambda g: transposed(g, (1, 5, 4, 6), (4, 3, 4, 6), (2, 2), (-1, 0, -1, -1), element="i16"),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("transpose_conv2d",), tmp_path_factory.mktemp("transposed"), samples=2)


@pytest.mark.parametrize("name", CASES)
def test_schedules_equal_the_reference(name, outcomes):
    assert len(outcomes[name]) > 2
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


def test_the_first_schedules_without_mve_equal_the_reference(tmp_path):
    """Also where the weights of some rows of a group allow what those of others do not."""
    found = outcomes_of(CASES, ("transpose_conv2d",), tmp_path, samples=0, bench=M4)
    for outcome in (outcome for each in found.values() for outcome in each):
        assert outcome.exact, outcome


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m3"])
def test_without_mve_the_convolution_is_a_portable_one(core):
    graph = Graph()
    (function,) = functions(graph.module(CASES["three by stride two"](graph))).values()
    known = {"cortex-m4": M4, "cortex-m3": M3}
    task = KernelTask.of(function, known[core].core, ("transpose_conv2d",))
    source = task.generate(task.default())
    assert "VECTOR" not in source.text and len(source.parts) == 1


def test_the_working_memory_is_some_rows():
    task = task_of(lambda g: transposed(g, (1, 64, 16, 8), (8, 4, 4, 8), (2, 2)), ("transpose_conv2d",))
    assert task.generate(task.default()).scratch_bytes < 4096 < 128 * 32 * 8


def test_sums_alone_are_left_to_the_generic_path():
    def build(g: Graph) -> ir.Value:
        return g.transpose_conv2d(g.input((1, 4, 4, 8)), np.ones((4, 2, 2, 8)), np.zeros(4), stride=(2, 2))

    assert {variant.name for variant in task_of(build).space.variants} == {"linalg.loops"}
