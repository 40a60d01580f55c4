"""Every alternative of the phase `npu` keeps its invariant and all outputs of random graphs, whatever forms are
cheapest."""

import hashlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tosa_graphs import Graph

from tosaic.backends.reference import evaluate
from tosaic.passes import first_difference, random_inputs, run_phase, run_phases
from tosaic.passes.npu.costs import COSTS
from tosaic.passes.phases import npu_phases
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import copy_of, functions, ir, shape_of

ANY = "any"
"""A target whose ops cost cycles by chance: each its own number, and a form what its ops cost together."""
FREE = ("tosa.reshape", "tosa.const", "tosa.const_shape")
MOST = 3000
"""Elements of a value that others may be computed from."""


def by_chance(module: ir.Module) -> int:
    return sum(map(_cycles, computing_ops(functions(module)["main"])))


def _cycles(op: ir.Operation) -> int:
    if op.name in FREE:
        return 0
    told = [op.name, *(str(value.type) for value in (*op.operands, *op.results))]
    told += [f"{name}={op.attributes[name]}" for name in sorted(op.attributes)]
    return 1 + hashlib.sha256(" ".join(told).encode()).digest()[0]


def factored(rng: np.random.Generator, size: int, rank: int) -> tuple[int, ...]:
    """Dimensions of so many elements, each prime factor in one of them."""
    shape, factor = [1] * rank, 2
    while size > 1:
        if size % factor:
            factor += 1
            continue
        shape[int(rng.integers(rank))] *= factor
        size //= factor
    return tuple(shape)


def narrowed(graph: Graph, rng: np.random.Generator, sums: ir.Value, scale: float) -> ir.Value:
    return graph.requantize(sums, "i8", scale=scale, output_zero=int(rng.integers(-20, 20)))


def moved(graph: Graph, rng: np.random.Generator, x: ir.Value) -> ir.Value:
    shape = shape_of(x)
    match rng.integers(3):
        case 0:
            return graph.transpose(x, rng.permutation(len(shape)).tolist())
        case 1:
            start = [int(rng.integers(size)) for size in shape]
            sizes = [int(rng.integers(1, size - at + 1)) for size, at in zip(shape, start, strict=True)]
            return graph.slice(x, start, sizes)
    return graph.reshape(x, factored(rng, int(np.prod(shape)), int(rng.integers(1, 6))))


def computed(graph: Graph, rng: np.random.Generator, x: ir.Value) -> ir.Value:
    shape, axis = shape_of(x), int(rng.integers(len(shape_of(x))))
    match rng.integers(6):
        case 0:
            return graph.requantize(x, "i8", scale=0.7, input_zero=int(rng.integers(-9, 9)))
        case 1:
            return graph.clamp(x, -90, 100)
        case 2:
            return graph.reduce(str(rng.choice(["reduce_max", "reduce_min"])), x, axis)
        case 3:
            wide = graph.requantize(x, "i32", scale=1.0, input_zero=int(rng.integers(-9, 9)))
            return narrowed(graph, rng, graph.reduce("reduce_sum", wide, axis), 0.1)
        case 4:
            a = graph.reshape(x, factored(rng, int(np.prod(shape)), 3))
            n, _, depth = shape_of(a)
            known = graph.const(rng.integers(-128, 128, (n, depth, 3)), "i8")
            b = graph.transpose(a, (0, 2, 1)) if rng.random() < 0.5 else known
            return narrowed(graph, rng, graph.matmul(a, b), 0.002)
    image = graph.reshape(x, factored(rng, int(np.prod(shape)), 4))
    weights = rng.integers(-128, 128, (int(rng.integers(1, 5)), 1, 1, shape_of(image)[3]))
    return narrowed(graph, rng, graph.conv2d(image, weights, rng.integers(-99, 99, len(weights)), input_zero=2), 0.004)


def joined(graph: Graph, rng: np.random.Generator, x: ir.Value, kept: list[ir.Value]) -> ir.Value:
    alike = [value for value in kept if shape_of(value) == shape_of(x)]
    other = alike[int(rng.integers(len(alike)))]
    if rng.random() < 0.5:
        return graph.concat([x, other], int(rng.integers(len(shape_of(x)))))
    wide = [graph.requantize(value, "i32", scale=900.0, input_zero=3) for value in (x, other)]
    return graph.requantize(graph.binary(str(rng.choice(["add", "sub", "maximum"])), *wide), "i8", scale=0.0007)


def random_module(seed: int, steps: list[int]) -> ir.Module:
    """Each step moves the last value (0, 1), computes from it (2, 3), or joins it with another (4)."""
    rng, graph = np.random.default_rng(seed), Graph()
    size, rank = int(rng.choice([24, 36, 60, 48, 64, 144, 210])), int(rng.integers(1, 5))
    kept = [graph.input(factored(rng, size, rank))]
    for step in steps:
        x = kept[-1]
        y = joined(graph, rng, x, kept) if step == 4 else (moved if step < 2 else computed)(graph, rng, x)
        if np.prod(shape_of(y)) < MOST:
            kept.append(y)
    return graph.module(kept[-1], *(kept[int(index)] for index in rng.integers(len(kept), size=2)))


@pytest.fixture(autouse=True, scope="module")
def costs():
    COSTS[ANY] = by_chance
    yield
    del COSTS[ANY]


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 4), min_size=2, max_size=9))
def test_random_graphs_keep_their_outputs_in_every_form(seed: int, steps: list[int]):
    module = random_module(seed, steps)
    inputs = random_inputs(module, seed)
    expected = evaluate(module, inputs)
    run_phases(module, ["layout", "fuse"])
    for phase in npu_phases(ANY):
        form = copy_of(module)
        run_phase(form, phase)
        assert first_difference(expected, evaluate(form, inputs)) == ""


def test_a_rescale_is_a_table_where_the_dimensions_before_it_vanish():
    """What stands between it and the op before is a reshape until all values have four dimensions."""
    graph = Graph()
    pixel = graph.requantize(graph.input((1, 1, 1, 8)), "i8", scale=0.7)
    module = graph.module(graph.requantize(graph.reshape(pixel, (1, 8)), "i8", scale=0.9, input_zero=3))
    _, *in_four_dimensions = npu_phases(ANY)
    for phase in in_four_dimensions:
        form = copy_of(module)
        run_phase(form, phase)
        assert [op.name for op in computing_ops(functions(form)["main"])].count("tosa.table") == 1
