"""`layout`, `fuse` and `place` leave every output of random integer graphs equal to the bit."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tosa_graphs import Graph

from tosaic.backends.reference import evaluate
from tosaic.passes import first_difference, random_inputs, run_phases
from tosaic.passes.integers import Rescale
from tosaic.passes.invariants import check_placed
from tosaic.passes.place.place import divide
from tosaic.support.mlir import copy_of, functions, ir, shape_of, walk

NCHW, NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def pointwise(graph: Graph, rng: np.random.Generator, x: ir.Value) -> ir.Value:
    kind = rng.integers(5)
    if kind == 0:
        return graph.table(x, rng.integers(-128, 128, 256))
    if kind == 1:
        low, high = sorted(rng.integers(-128, 128, 2).tolist())
        return graph.clamp(x, low, high)
    if kind == 2:
        points = {"input_zero": int(rng.integers(-128, 128)), "output_zero": int(rng.integers(-128, 128))}
        return graph.requantize(x, "i8", scale=float(rng.choice([0.3, 0.999, 1.0, 1.7])), **points)
    if kind == 3:
        wide = graph.requantize(x, "i32", scale=1.0, input_zero=5)
        return graph.requantize(wide, "i8", scale=float(rng.choice([1.0, 0.7])), output_zero=5)
    return graph.unary("identity", x)


def move(graph: Graph, rng: np.random.Generator, x: ir.Value) -> ir.Value:
    kind, dims = rng.integers(6), shape_of(x)
    if kind == 0:
        return graph.transpose(x, rng.permutation(4).tolist())
    if kind == 1:
        return graph.transpose(graph.transpose(x, NCHW), rng.permutation(4).tolist())
    if kind == 2:
        return graph.pad(x, rng.integers(0, 2, 8).tolist(), int(rng.choice([-128, 0, 3])))
    if kind == 3:
        start = [int(rng.integers(size)) for size in dims]
        return graph.slice(x, start, [int(rng.integers(1, d - s + 1)) for d, s in zip(dims, start, strict=True)])
    if kind == 4:
        other = pointwise(graph, rng, x) if rng.integers(2) else graph.const(rng.integers(-128, 128, dims), "i8")
        return graph.concat([x, other][:: int(rng.choice([1, -1]))], int(rng.integers(4)))
    return graph.reshape(graph.reshape(x, (int(np.prod(dims)),)), dims)


def compute(graph: Graph, rng: np.random.Generator, x: ir.Value) -> ir.Value:
    kind, channels = rng.integers(6), shape_of(x)[3]
    if kind == 0:
        weights = rng.integers(-128, 128, (int(rng.integers(1, 5)), 2, 2, channels))
        y = graph.conv2d(x, weights, rng.integers(-999, 999, len(weights)), pad=(1, 0, 0, 1), input_zero=3)
        return graph.requantize(y, "i8", scale=rng.uniform(1e-4, 1e-2, len(weights)))
    if kind == 1:
        padded = graph.pad(x, (0, 0, 1, 0, 0, 1, 0, 0), -128)
        return graph.pool("max", padded, (2, 2))
    if kind == 2:
        other = move(graph, rng, graph.transpose(pointwise(graph, rng, x), NCHW))
        other = x if shape_of(other) != tuple(shape_of(x)[i] for i in NCHW) else graph.transpose(other, NHWC)
        wide = [graph.requantize(v, "i32", scale=900.0, input_zero=3) for v in (x, other)]
        return graph.requantize(graph.binary("add", *wide), "i8", scale=0.0007)
    if kind == 3:
        return graph.reduce(str(rng.choice(["reduce_max", "reduce_min"])), x, int(rng.integers(4)))
    if kind == 4:
        return graph.unary("reverse", x, axis=int(rng.integers(4)))
    moved = graph.transpose(x, NCHW)
    size = int(np.prod(shape_of(moved)[1:]))
    flat = graph.reshape(moved, (shape_of(moved)[0], 1, 1, size))
    return graph.requantize(graph.conv2d(flat, rng.integers(-128, 128, (3, 1, 1, size)), np.zeros(3)), "i8", scale=1e-3)


def join(graph: Graph, a: ir.Value, b: ir.Value) -> ir.Value:
    wide = [graph.requantize(value, "i32", scale=900.0, input_zero=3) for value in (a, b)]
    return graph.requantize(graph.binary("sub", *wide), "i8", scale=0.0007)


def random_module(seed: int, steps: list[int]) -> ir.Module:
    """Each step 0..2 goes on from the last value, step 3 joins it with an earlier one or starts a branch from that; the
    module takes two inputs, and returns the last value and two others."""
    rng, graph = np.random.default_rng(seed), Graph()
    kept = [graph.input((1, 3, 4, 5)), graph.input((1, 3, 4, 5))]
    for step in steps:
        x = kept[-1]
        if step == 3:
            other = kept[int(rng.integers(len(kept)))]
            x = join(graph, x, other) if shape_of(x) == shape_of(other) else pointwise(graph, rng, other)
        else:
            x = [pointwise, move, compute][step](graph, rng, x)
        if np.prod(shape_of(x)) > 4000:
            x = graph.slice(x, (0, 0, 0, 0), [min(size, 4) for size in shape_of(x)])
        kept.append(x)
    return graph.module(kept[-1], *(kept[int(index)] for index in rng.integers(len(kept), size=2)))


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 3), min_size=2, max_size=9),
    st.sampled_from([0.1, 0.3, 0.6]),
    st.sampled_from([0, 100, 4096]),
)
def test_random_graphs_keep_their_outputs(seed: int, steps: list[int], refused: float, hop_cost: int):
    module = random_module(seed, steps)
    inputs = random_inputs(module, seed)
    expected = evaluate(module, inputs)
    run_phases(module, ["layout", "fuse"])
    rng = np.random.default_rng(seed)
    divide(module, lambda op: "by chance" if rng.random() < refused else None, hop_cost)
    check_placed(copy_of(module))
    assert first_difference(expected, evaluate(module, inputs)) == ""


def test_a_convolutional_net_in_nchw_keeps_one_transpose():
    """Each layer transposes in and out, as the importer writes it; sums, clamps, pads and a concat stand between."""
    rng, graph = np.random.default_rng(0), Graph()
    x = graph.input((1, 3, 8, 8))

    def layer(value: ir.Value, channels: int) -> ir.Value:
        image = graph.transpose(value, NHWC)
        weights = rng.integers(-128, 128, (channels, 3, 3, shape_of(image)[3]))
        y = graph.conv2d(image, weights, np.zeros(channels), pad=(1, 1, 1, 1))
        return graph.clamp(graph.transpose(graph.requantize(y, "i8", scale=1e-3), NCHW), -100, 100)

    a = layer(x, 4)
    b = layer(a, 4)
    total = graph.binary("add", *(graph.requantize(v, "i32", scale=900.0) for v in (a, b)))
    c = graph.requantize(total, "i8", scale=0.0007)
    d = graph.concat([layer(c, 2), c], 1)
    flat = graph.reshape(d, (1, 1, 1, 6 * 64))
    y = graph.conv2d(flat, rng.integers(-128, 128, (5, 1, 1, 6 * 64)), np.zeros(5))
    module = graph.module(graph.reshape(graph.requantize(y, "i8", scale=1e-3), (1, 5)))
    inputs = random_inputs(module, 0)
    expected = evaluate(module, inputs)
    run_phases(module, ["layout", "fuse"])
    assert [op.name for op in walk(functions(module)["main"])].count("tosa.transpose") == 1
    assert first_difference(expected, evaluate(module, inputs)) == ""


@pytest.mark.parametrize("source", ["i8", "i16"])
def test_rescale_on_arrays_is_the_reference_models(source):
    graph = Graph()
    dtype = np.int8 if source == "i8" else np.int16
    x = graph.input((1, 256), source)
    zero = 7 if source == "i8" else 0
    module = graph.module(graph.rescale(x, "i8", 1234567890, 33, input_zero=zero, output_zero=-9))
    data = np.linspace(np.iinfo(dtype).min, np.iinfo(dtype).max, 256).astype(dtype).reshape(1, 256)
    (got,) = evaluate(module, [data])
    assert (Rescale(1234567890, 33, zero, -9, source, "i8")(data) == got).all()
