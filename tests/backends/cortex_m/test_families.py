"""Pointwise and pooling kernels: every schedule, under QEMU, equals the reference model. All kernels run in one ELF."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_runner import Trial, outputs_of, run_trials
from tosa_graphs import Graph, random_inputs

from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.reference import evaluate
from tosaic.backends.target import CORTEX_M55
from tosaic.support.mlir import functions, ir

_RNG = np.random.default_rng(3)


def _residual_add(shape: tuple[int, ...]) -> Callable[[Graph], ir.Value]:
    def build(g: Graph) -> ir.Value:
        a = g.rescale(g.input(shape), "i32", 1 << 30, 10, input_zero=3)
        b = g.rescale(g.input(shape), "i32", 1518500250, 11, input_zero=-4)
        return g.clamp(g.rescale(g.binary("add", a, b), "i8", 1690000000, 50, output_zero=-5), -100, 90)

    return build


def _widened(g: Graph, shape: tuple[int, ...], zero: int = 0) -> ir.Value:
    return g.rescale(g.input(shape), "i32", 1 << 30, 30, input_zero=zero)


def _larger(g: Graph) -> ir.Value:
    a, b = g.input((2, 3, 13)), g.input((2, 3, 13))
    condition = g.binary("greater", g.unary("cast", a, "i32"), g.unary("cast", b, "i32"), "i1")
    return g.op("select", [condition, a, b], (2, 3, 13), "i8")


CASES: dict[str, Callable[[Graph], ir.Value]] = {
    "pointwise: residual add": _residual_add((1, 32, 32, 16)),
    "pointwise: residual add of odd shape": _residual_add((1, 3, 5, 7)),
    "pointwise: residual add of three elements": _residual_add((3,)),
    "pointwise: table": lambda g: g.table(g.input((1, 16, 16, 7)), _RNG.integers(-128, 128, 256)),
    "pointwise: rescale per channel": lambda g: g.requantize(
        g.input((1, 4, 4, 7), "i32"), "i8", np.geomspace(1e-8, 1e-4, 7)
    ),
    "pointwise: rescale at shift 32": lambda g: g.rescale(g.input((5, 9), "i32"), "i32", (1 << 31) - 1, 32),
    "pointwise: rescale at shift 2": lambda g: g.rescale(g.clamp(g.input((5, 9)), -1, 0), "i32", (1 << 30) + 1, 2),
    "pointwise: rescale at shift 62": lambda g: g.rescale(g.input((5, 9), "i32"), "i32", (1 << 31) - 1, 62),
    "pointwise: scale by channel": lambda g: g.requantize(
        g.mul(_widened(g, (1, 8, 8, 18), 3), _widened(g, (1, 1, 1, 18), -9)), "i8", 0.003, output_zero=4
    ),
    "pointwise: subtract by row": lambda g: g.binary("sub", _widened(g, (1, 8, 15)), _widened(g, (1, 8, 1))),
    "pointwise: select the larger": _larger,
    "pointwise: clamp of int16": lambda g: g.clamp(g.input((2, 3, 13), "i16"), -200, 5000),
    "pointwise: rescale int16 to int8": lambda g: g.requantize(g.input((2, 3, 13), "i16"), "i8", 3e-3, output_zero=5),
    "pointwise: compare with a constant": lambda g: g.binary(
        "equal", g.unary("cast", g.input((2, 3, 13)), "i32"), g.const([[[5]]], "i32"), "i1"
    ),
    "pointwise: logic": lambda g: g.binary(
        "logical_and", g.unary("logical_not", g.input((2, 3, 13), "i1")), g.input((2, 3, 13), "i1")
    ),
    "pool: average 2x2": lambda g: g.pool("avg", g.input((1, 8, 8, 16)), (2, 2), (2, 2), zero=-128, out_zero=-128),
    "pool: average 1x1": lambda g: g.pool("avg", g.input((1, 4, 4, 16)), (1, 1), zero=-128, out_zero=4),
}
for e in ("i8", "i16"):
    zero, out_zero = (5, -3) if e == "i8" else (0, 0)
    for c in (3, 7, 16, 40):
        CASES[f"pool: maximum {e} {c}"] = lambda g, e=e, c=c: g.pool(
            "max", g.input((1, 7, 6, c), e), (3, 3), (2, 2), (1, 1, 1, 0)
        )
        CASES[f"pool: average {e} {c}"] = lambda g, e=e, c=c, z=zero, o=out_zero: g.pool(
            "avg", g.input((2, 7, 6, c), e), (7, 6), zero=z, out_zero=o
        )


def _task(module: ir.Module, families: tuple[str, ...] = ()) -> KernelTask:
    (function,) = functions(module).values()
    return KernelTask.of(function, CORTEX_M55, families)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """(schedule, board's output, reference's output, instructions) of every schedule of every case."""
    rng = np.random.default_rng(0)
    trials, labels = [], []
    for name, build in CASES.items():
        graph = Graph()
        module = graph.module(build(graph))
        inputs = random_inputs(rng, graph)
        (expected,) = evaluate(module, inputs)
        for family in (name.partition(":")[0], "linalg"):
            task = _task(module, (family,))
            for schedule in task.space.schedules():
                assert schedule.variant.startswith(f"{family}."), f"{name} is not covered by {family}"
                trials.append(Trial(task.generate(schedule), inputs, outputs_of(module)))
                labels.append((name, schedule, expected))
    results = run_trials(trials, tmp_path_factory.mktemp("families"))
    found: dict[str, list] = {name: [] for name in CASES}
    for (name, schedule, expected), result in zip(labels, results, strict=True):
        found[name].append((schedule, result.outputs[0], expected, result.instructions))
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_equals_the_reference(name, outcomes):
    assert len(outcomes[name]) > 1
    for schedule, got, want, _ in outcomes[name]:
        assert np.array_equal(got, want), schedule


def test_residual_add_takes_a_third_of_the_generic_kernel(outcomes):
    cost = {schedule.variant: instructions for schedule, _, _, instructions in outcomes["pointwise: residual add"]}
    assert cost["pointwise.lanes"] * 3 < cost["linalg.loops"]


def _not_covered(build: Callable[[Graph], ir.Value]) -> set[str]:
    graph = Graph()
    return {variant.name.partition(".")[0] for variant in _task(graph.module(build(graph))).space.variants}


@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.rescale(g.input((3, 5), "i32"), "i32", 1 << 30, 20),
        lambda g: g.rescale(g.input((3, 5), "i32"), "i8", 1 << 30, 50, rounding="DOUBLE_ROUND"),
        lambda g: g.binary("add", g.input((3, 4, 5), "i32"), g.input((3, 1, 5), "i32")),
        lambda g: g.binary("add", g.input((3, 5), "f32"), g.input((3, 5), "f32")),
        lambda g: g.pool("avg", g.input((1, 7, 6, 5)), (3, 3), (2, 2), (1, 1, 1, 0)),
    ],
)
def test_what_a_family_cannot_do_exactly_it_leaves_to_the_generic_path(build):
    assert _not_covered(build) == {"linalg"}


def test_an_integer_output_may_take_the_place_of_an_input():
    graph = Graph()
    task = _task(graph.module(_residual_add((1, 4, 4, 16))(graph)))
    assert task.generate(task.default()).in_place == ((0, 0), (1, 0))
