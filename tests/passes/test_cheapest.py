"""Every form of an op equals it to the bit, on the reference model and on the emulated NPU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import compile_region
from tosaic.backends.reference import evaluate, serialize
from tosaic.passes import create, first_difference, random_inputs
from tosaic.passes.invariants import check_for_npu
from tosaic.passes.npu.cheapest_transposes import merged
from tosaic.passes.npu.costs import COSTS
from tosaic.support.errors import Error
from tosaic.support.mlir import copy_of, ir, shape_of, walk

TRANSPOSES = [
    ((1, 3, 12, 20), (0, 2, 3, 1)),
    ((1, 6, 5, 2, 8), (0, 1, 2, 4, 3)),
    ((1, 6, 3, 2, 16), (2, 0, 3, 1, 4)),
    ((2, 4, 6, 4), (0, 2, 1, 3)),
    ((5, 7), (1, 0)),
    ((1, 4, 3, 4, 5), (0, 1, 3, 2, 4)),
]


def forms(module: ir.Module, name: str, monkeypatch: pytest.MonkeyPatch) -> list[ir.Module]:
    """What the pass makes of `module` if each of up to six choices in turn costs least."""
    found = {}
    for choice in range(6):
        asked: list[ir.Module] = []

        def cost(one: ir.Module, choice=choice, asked=asked) -> int:
            asked.append(one)
            return 0 if len(asked) - 1 == choice else 1 << 30

        monkeypatch.setitem(COSTS, "any", cost)
        copy = copy_of(module)
        create(name, {"target": "any"}).run(copy)
        copy.operation.verify()
        found[str(copy)] = copy
    return list(found.values())


def check(
    module: ir.Module, others: list[ir.Module], accelerators: Sequence[str] = ("ethos-u55-128", "ethos-u85-256")
) -> None:
    """Every form equals the module on random numbers, and where all are the least or the greatest of their type."""
    given = random_inputs(module, 0)
    limits = [(np.iinfo(array.dtype).min, np.iinfo(array.dtype).max) for array in given]
    samples = [
        given,
        *([np.full_like(*pair) for pair in zip(given, ends, strict=True)] for ends in zip(*limits, strict=True)),
    ]
    expected = [evaluate(module, inputs) for inputs in samples]
    for other in others:
        regions = [compile_region(serialize(other), accelerator) for accelerator in accelerators]
        for inputs, outputs in zip(samples, expected, strict=True):
            assert not first_difference(outputs, evaluate(other, inputs))
            for region in regions:
                assert not first_difference(outputs, emulate(region, inputs).outputs)


@pytest.mark.parametrize(("shape", "perm"), TRANSPOSES)
def test_every_form_of_a_transpose(shape, perm, monkeypatch):
    graph = Graph()
    module = graph.module(graph.transpose(graph.input(shape), perm))
    others = forms(module, "cheapest-transposes", monkeypatch)
    assert len(others) >= 2
    check(module, others)


@pytest.mark.parametrize(("shape", "kernel"), [((1, 9, 1, 8), (1, 1)), ((1, 1, 9, 8), (1, 1)), ((1, 12, 8, 3), (4, 2))])
def test_every_form_of_a_convolution(shape, kernel, monkeypatch):
    rng, graph = np.random.default_rng(0), Graph()
    weights = rng.integers(-127, 128, (5, *kernel, shape[-1]))
    y = graph.conv2d(graph.input(shape), weights, rng.integers(-999, 999, 5), stride=kernel, input_zero=4)
    module = graph.module(graph.requantize(y, "i8", np.linspace(0.001, 0.003, 5)))
    others = forms(module, "cheapest-convolutions", monkeypatch)
    assert len(others) == 2
    check(module, others)


@pytest.mark.parametrize(("kind", "outputs", "bias", "count"), [("i8", 86, 0, 3), ("i16", 12, 999, 3), ("i8", 7, 9, 2)])
def test_every_form_of_a_layer(kind, outputs, bias, count, monkeypatch):
    rng, graph = np.random.default_rng(0), Graph()
    weights = rng.integers(-127, 128, (outputs, 1, 1, 64))
    y = graph.conv2d(graph.input((1, 1, 1, 64)), weights, rng.integers(-bias, bias + 1, outputs), input_zero=4)
    multipliers, shifts = rng.integers(2**19, 2**22, outputs), rng.integers(27, 32, outputs)
    zero = 3 if kind == "i8" else 0
    module = graph.module(graph.rescale(y, kind, multipliers, shifts, output_zero=zero))
    others = forms(module, "cheapest-layers", monkeypatch)
    assert len(others) == count
    check(module, others, ("ethos-u85-256",))


def test_a_layer_of_several_pixels_or_of_multipliers_without_one_shift_stays(monkeypatch):
    for pixels, shifts, readers in ((2, [31, 31], 1), (1, [31, 20], 1), (1, [31, 31], 2)):
        graph = Graph()
        y = graph.conv2d(graph.input((1, 1, pixels, 8)), np.ones((2, 1, 1, 8)), np.zeros(2))
        scaled = [graph.rescale(y, "i8", [2**21 + 1, 2**21 + one], shifts) for one in range(readers)]
        assert len(forms(graph.module(*scaled), "cheapest-layers", monkeypatch)) == 1


@pytest.mark.parametrize(("gain", "image"), [(0.3, (1, 1, 54, 16)), (0.2, (1, 9, 6, 16))])
def test_pixels_of_an_image_go_in_a_row_where_that_saves_a_quarter(gain, image, monkeypatch):
    rng, graph = np.random.default_rng(0), Graph()
    weights = rng.integers(-127, 128, (5, 1, 1, 16))
    y = graph.conv2d(graph.input((1, 9, 6, 16)), weights, rng.integers(-999, 999, 5), input_zero=4)
    module = graph.module(graph.requantize(y, "i8", np.linspace(0.001, 0.003, 5)))
    costs = iter((1000, round(1000 * (1 - gain))))
    monkeypatch.setitem(COSTS, "any", lambda _: next(costs))
    other = copy_of(module)
    create("pixels-to-rows", {"target": "any"}).run(other)
    (convolution,) = (op for op in walk(other) if op.name == "tosa.conv2d")
    assert shape_of(convolution.operands[0]) == image
    check(module, [other])


@pytest.mark.parametrize("kernel", [(2, 2), (1, 1)])
def test_every_form_of_a_transpose_convolution(kernel, monkeypatch):
    rng, graph = np.random.default_rng(0), Graph()
    weights = rng.integers(-127, 128, (6, *kernel, 8))
    y = graph.transpose_conv2d(graph.input((1, 5, 7, 8)), weights, rng.integers(-999, 999, 6), stride=kernel)
    module = graph.module(graph.requantize(y, "i8", np.linspace(0.001, 0.003, 6)))
    others = forms(module, "cheapest-transpose-convolutions", monkeypatch)
    assert len(others) >= 2
    check(module, others)


FEW_CHANNELS = [
    # shape, kernel, stride, pad, dilation, forms
    ((1, 9, 10, 1), (4, 4), (2, 2), (1, 2, 1, 1), (1, 1), 3),
    ((1, 6, 12, 3), (3, 3), (2, 2), (0, 1, 0, 1), (1, 1), 3),
    ((1, 6, 8, 3), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3),
    ((1, 5, 12, 2), (2, 3), (1, 1), (0, 1, 2, 2), (1, 2), 5),
    ((2, 5, 12, 2), (3, 1), (1, 3), (1, 1, 0, 1), (1, 1), 2),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "pad", "dilation", "count"), FEW_CHANNELS)
def test_every_form_with_columns_as_channels(shape, kernel, stride, pad, dilation, count, monkeypatch):
    rng, graph = np.random.default_rng(0), Graph()
    weights = rng.integers(-127, 128, (6, *kernel, shape[-1]))
    x, bias = graph.input(shape), rng.integers(-999, 999, 6)
    y = graph.conv2d(x, weights, bias, stride=stride, pad=pad, dilation=dilation, input_zero=-9)
    module = graph.module(graph.requantize(y, "i8", np.linspace(0.001, 0.003, 6)))
    others = forms(module, "columns-to-channels", monkeypatch)
    assert len(others) == count
    check(module, others)


def test_columns_stay_where_channels_are_many_or_sums_are_read_twice(monkeypatch):
    graph = Graph()
    y = graph.conv2d(graph.input((1, 9, 8, 16)), np.ones((4, 3, 3, 16)), np.zeros(4), stride=(2, 2), pad=(0, 0, 0, 1))
    module = graph.module(graph.requantize(y, "i8", 0.01))
    assert len(forms(module, "columns-to-channels", monkeypatch)) == 1
    graph = Graph()
    y = graph.conv2d(graph.input((1, 9, 8, 3)), np.ones((4, 3, 3, 3)), np.zeros(4), stride=(2, 2), pad=(0, 0, 0, 1))
    module = graph.module(graph.requantize(y, "i8", 0.01), graph.requantize(y, "i8", 0.02))
    assert len(forms(module, "columns-to-channels", monkeypatch)) == 1


CHANNELS = np.array([[[37, -200, 0, 90_000, -3, 5, 0, -41]]])


@pytest.mark.parametrize("element", ["i8", "i16"])
@pytest.mark.parametrize("signed", [False, True])
def test_an_affine_function_of_channels_as_a_depthwise_convolution(element, signed, monkeypatch):
    graph = Graph()
    x = graph.input((1, 6, 8), element)
    signs = graph.const([[[1, -1, 1, 0, 127, -127, 1, 2]]], element)
    wide = graph.mul(x, signs) if signed else graph.rescale(x, "i32", 1 << 30, 30, input_zero=-9 * (element == "i8"))
    multipliers = (np.arange(1, 9) * 4001) << 9
    total = graph.binary("add", graph.const(CHANNELS, "i32"), wide)
    module = graph.module(graph.rescale(total, "i8", multipliers, np.full(8, 31), output_zero=5))
    others = forms(module, "affine-to-depthwise", monkeypatch)
    assert [op.name for op in walk(others[1]) if op.name == "tosa.depthwise_conv2d"]
    check(module, others)


def test_channels_stay_where_a_factor_has_more_bits_or_a_weight_is_no_int8(monkeypatch):
    for factor, weight in (((1 << 30) + 1, 1), (1 << 30, 128)):
        graph = Graph()
        x = graph.input((1, 6, 8), "i16")
        wide = graph.mul(x, graph.const(np.full((1, 1, 8), weight), "i16"))
        total = graph.binary("add", wide, graph.const(CHANNELS, "i32"))
        module = graph.module(graph.rescale(total, "i8", [factor] * 8, [45] * 8))
        assert len(forms(module, "affine-to-depthwise", monkeypatch)) == 1


def summed(graph: Graph, one: ir.Value, other: ir.Value, factors: tuple[int, int] = (1 << 19, 33 << 13)) -> ir.Value:
    """An ADD in one fine unit, as the quantizer makes it."""
    wide = [
        graph.rescale(x, "i32", factor << 10, 10, input_zero=zero)
        for x, factor, zero in zip((one, other), factors, (3, -9), strict=True)
    ]
    return graph.rescale(graph.binary("add", *wide), "i8", 1785399231, 50, output_zero=4)


def convolved(graph: Graph, x: ir.Value, channels: int, kernel: int = 1) -> ir.Value:
    weights = np.random.default_rng(kernel).integers(-127, 128, (channels, kernel, kernel, x.type.shape[-1]))
    pad = (kernel // 2,) * 4
    return graph.requantize(graph.conv2d(x, weights, np.arange(channels) * 99, pad=pad), "i8", 0.002, output_zero=-5)


@pytest.mark.parametrize("factors", [(1 << 19, 33 << 13), (106 << 13, 53 << 13)])
@pytest.mark.parametrize("read_twice", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_sum_of_images_as_a_convolution_of_both(read_twice, swapped, factors, monkeypatch):
    graph = Graph()
    x = graph.input((1, 6, 5, 8))
    one, other = convolved(graph, x, 16), convolved(graph, x, 16, 3)
    if read_twice:
        other = convolved(graph, one, 16, 3)
    total = summed(graph, *((other, one) if swapped else (one, other)), factors)
    module = graph.module(total, *([one] if read_twice else []))
    others = forms(module, "sums-to-convolutions", monkeypatch)
    assert len(others) == 2
    names = [op.name for op in walk(others[1])]
    assert "tosa.add" not in names
    assert names.count("tosa.depthwise_conv2d") == read_twice
    check(module, others)


@pytest.mark.parametrize("factors", [(1 << 19, 263117), (3 << 13, 5 << 12), (1 << 19, 1 << 10)])
def test_sums_stay_where_a_factor_is_no_int8_or_nothing_is_convolved(factors, monkeypatch):
    graph = Graph()
    x = graph.input((1, 6, 5, 8))
    parts = [convolved(graph, x, 8), convolved(graph, x, 8, 3)]
    if factors[0] == 3 << 13:
        parts = [x, graph.input((1, 6, 5, 8))]
    module = graph.module(summed(graph, parts[0], parts[1], factors))
    assert len(forms(module, "sums-to-convolutions", monkeypatch)) == 1


def centered(graph: Graph, x: ir.Value, parts: int = 2, zero: int = -7) -> ir.Value:
    """`128 * x - parts * sum(x)` in i16, as LAYER_NORM begins with 64 channels."""
    total = graph.reduce("reduce_sum", graph.rescale(x, "i32", 1 << 30, 30, input_zero=zero), 2)
    mean = graph.rescale(graph.rescale(total, "i16", 1 << 30, 31 - parts), "i32", 1 << 30, 30)
    own = graph.rescale(graph.rescale(x, "i16", 1 << 30, 23, input_zero=-7), "i32", 1 << 30, 30)
    return graph.rescale(graph.binary("sub", own, mean), "i16", 1 << 30, 30)


def test_centering_as_a_convolution(monkeypatch):
    graph = Graph()
    module = graph.module(centered(graph, graph.input((1, 6, 64))))
    others = forms(module, "centering-to-convolutions", monkeypatch)
    assert len(others) == 2
    assert [op.name for op in walk(others[1]) if op.name.startswith("tosa.")].count("tosa.conv2d") == 1
    check(module, others)


@pytest.mark.parametrize(
    ("channels", "parts", "zero"),
    [
        (64, 0, -7),  # a mean that is rounded
        (256, 2, -7),  # one that may saturate
        (64, 2, 3),  # of other numbers than each channel
    ],
)
def test_centering_stays_where_it_is_no_linear_map(channels, parts, zero, monkeypatch):
    graph = Graph()
    module = graph.module(centered(graph, graph.input((1, 6, channels)), parts, zero))
    assert len(forms(module, "centering-to-convolutions", monkeypatch)) == 1


def test_centering_stays_where_the_sum_is_read_too(monkeypatch):
    graph = Graph()
    y = centered(graph, graph.input((1, 6, 64)))
    sums = next(op for op in walk(y.owner.operation.parent) if op.name == "tosa.reduce_sum")
    module = graph.module(y, sums.results[0])
    assert len(forms(module, "centering-to-convolutions", monkeypatch)) == 1


def test_overlapping_kernels_and_equal_costs_stay(monkeypatch):
    graph = Graph()
    y = graph.conv2d(graph.input((1, 9, 9, 3)), np.ones((4, 3, 3, 3)), np.zeros(4), stride=(2, 2))
    module = graph.module(graph.requantize(y, "i8", 0.01))
    assert len(forms(module, "cheapest-convolutions", monkeypatch)) == 1
    graph = Graph()
    module = graph.module(graph.transpose(graph.input((1, 3, 12, 20)), (0, 2, 3, 1)))
    monkeypatch.setitem(COSTS, "any", lambda one: 1 << 30)
    create("cheapest-transposes", {"target": "any"}).run(module)
    assert [op.name for op in walk(module) if op.name.startswith("tosa.")] == ["tosa.transpose"]


def test_a_convolution_of_a_constant_stays(monkeypatch):
    graph = Graph()
    y = graph.conv2d(graph.const(np.ones((1, 9, 1, 8)), "i8"), np.ones((5, 1, 1, 8)), np.zeros(5))
    module = graph.module(graph.requantize(y, "i8", 0.01))
    assert len(forms(module, "cheapest-convolutions", monkeypatch)) == 1


def test_dimensions_that_stay_together_are_one():
    assert merged((1, 37, 3, 3, 64), (2, 0, 3, 1, 4)) == ((37, 9, 64), (1, 0, 2))
    assert merged((1, 3, 96, 96), (0, 2, 3, 1)) == ((3, 9216), (1, 0))
    assert merged((1, 5, 1), (2, 1, 0)) == ((5,), (0,))


def test_an_unknown_target_is_named():
    graph = Graph()
    module = graph.module(graph.transpose(graph.input((2, 3)), (1, 0)))
    with pytest.raises(Error, match="`corstone-30x`"):
        create("cheapest-transposes", {"target": "corstone-30x"}).run(module)


@pytest.mark.parametrize("depthwise", [False, True])
def test_every_form_of_a_transpose_behind_a_convolution(depthwise, monkeypatch):
    graph, rng = Graph(), np.random.default_rng(3)
    x = graph.input((1, 6, 5, 8))
    weights = rng.integers(-127, 128, (3, 3, 8, 1) if depthwise else (8, 3, 3, 8))
    convolve = graph.depthwise_conv2d if depthwise else graph.conv2d
    y = convolve(x, weights, rng.integers(-99, 99, 8), pad=(1, 1, 1, 1), input_zero=3)
    y = graph.table(graph.requantize(y, "i8", scale=rng.uniform(1e-3, 3e-3, 8)), rng.integers(-128, 128, 256))
    module = graph.module(graph.transpose(y, (0, 3, 1, 2)))
    others = forms(module, "cheapest-transposes", monkeypatch)
    assert len(others) == 6
    check(module, others)


@pytest.mark.parametrize("matrices", [1, 3])
@pytest.mark.parametrize("turned", ["", "by rows", "as an image"])
@pytest.mark.parametrize("element", ["i8", "i16"])
def test_every_form_of_a_product(matrices, turned, element, monkeypatch):
    graph, small = Graph(), element == "i8"
    a = graph.input((matrices, 2, 24), element)
    shape = (matrices, 12, 24) if turned else (matrices, 24, 12)
    b = graph.input((1, *shape) if turned == "as an image" else shape, element)
    if turned == "by rows":
        b = graph.transpose(b, (0, 2, 1))
    elif turned:
        b = graph.reshape(graph.transpose(b, (0, 1, 3, 2)), (matrices, 24, 12))
    sums = graph.matmul(a, b, 5 * small, -7 * small)
    module = graph.module(graph.requantize(sums, element, 0.001 if small else 1e-6))
    others = forms(module, "cheapest-products", monkeypatch)
    assert [sum(op.name == "tosa.conv2d" for op in walk(other)) for other in others] == [0, 0, 1, 1][: 2 + 2 * small]
    check(module, others, ["ethos-u85-256"])


@pytest.mark.parametrize("viewed", [False, True])
def test_every_form_of_a_product_with_a_mask(viewed, monkeypatch):
    graph = Graph()
    keys = graph.transpose(graph.input((3, 12, 8)), (0, 2, 1))
    scores = graph.requantize(graph.matmul(graph.input((3, 2, 8)), keys, 5, -7), "i8", 0.004, output_zero=-3)
    scores = graph.reshape(scores, (1, 6, 1, 12)) if viewed else scores
    mask = graph.rescale(graph.input((1, 1, 1, 12) if viewed else (1, 1, 12)), "i32", 1 << 30, 19, input_zero=4)
    wide = graph.rescale(scores, "i32", 1 << 30, 20, input_zero=-3)
    total = graph.binary("add", *((wide, mask) if viewed else (mask, wide)))
    module = graph.module(graph.rescale(total, "i8", 1785399231, 42, output_zero=4))
    others = forms(module, "cheapest-products", monkeypatch)
    products = [[shape_of(op.results[0]) for op in walk(other) if op.name == "tosa.matmul"] for other in others]
    assert [(3, 12, 2)] in products
    assert [(6, 6, 2)] in products
    check(module, others, ["ethos-u85-256"])


def test_forms_end_that_each_cost_less_than_what_they_are_made_of(monkeypatch):
    graph, costs = Graph(), itertools.count(250, -1)
    sums = graph.matmul(graph.input((3, 2, 8), "i16"), graph.input((3, 8, 12), "i16"))
    module = graph.module(graph.requantize(sums, "i16", 1e-6))
    monkeypatch.setitem(COSTS, "falling", lambda _: next(costs))
    other = copy_of(module)
    create("cheapest-products", {"target": "falling"}).run(other)
    products = [shape_of(op.results[0]) for op in walk(other) if op.name == "tosa.matmul"]
    assert products == [(3, 12, 2)]  # exchanged three times
    check(module, [other], ["ethos-u85-256"])


def test_a_product_stays_to_whose_rows_different_ones_are_added(monkeypatch):
    graph = Graph()
    scores = graph.requantize(graph.matmul(graph.input((3, 2, 8)), graph.input((3, 8, 12))), "i8", 0.004)
    total = graph.binary("add", *(graph.rescale(x, "i32", 1 << 30, 20) for x in (scores, graph.input((1, 2, 12)))))
    module = graph.module(graph.rescale(total, "i8", 1785399231, 42))
    others = forms(module, "cheapest-products", monkeypatch)
    added = [op for other in others for op in walk(other) if op.name == "tosa.add"]
    assert {len(shape_of(op.results[0])) for op in added} == {3}


def test_a_product_stays_whose_sums_are_read_twice_or_whose_operands_are_one(monkeypatch):
    graph = Graph()
    sums = graph.matmul(graph.input((1, 2, 8)), graph.input((1, 8, 6)))
    twice = graph.module(graph.requantize(sums, "i8", 0.01), graph.requantize(sums, "i8", 0.02))
    graph = Graph()
    x = graph.input((1, 8, 8))
    squared = graph.module(graph.requantize(graph.matmul(x, x), "i8", 0.01))
    assert [len(forms(module, "cheapest-products", monkeypatch)) for module in (twice, squared)] == [1, 1]


def test_an_extremum_of_other_axes_and_numbers_stays(monkeypatch):
    graph = Graph()
    columns, wide = graph.input((1, 64, 3, 5)), graph.input((1, 3, 64), "i32")
    module = graph.module(graph.reduce("reduce_max", columns, 1), graph.reduce("reduce_max", wide, 2))
    assert len(forms(module, "cheapest-reductions", monkeypatch)) == 1


@pytest.mark.parametrize(
    ("shape", "count"), [((8, 1, 64), 6), ((2, 6, 49), 3), ((3, 2, 34), 2), ((1, 5, 16), 1), ((2, 4, 36), 6)]
)
@pytest.mark.parametrize("element", ["i8", "i16"])
def test_every_form_of_an_extremum(shape, count, element, monkeypatch):
    graph = Graph()
    module = graph.module(graph.reduce("reduce_max", graph.input(shape, element), len(shape) - 1))
    create("reduce-rows", {}).run(module)
    others = forms(module, "cheapest-reductions", monkeypatch)
    assert len(others) == count
    check(module, others)
    for other in others:
        create("transposes-to-reshapes", {}).run(other)
        check_for_npu(other)


def squared(graph: Graph, x: ir.Value, left: int = 7, right: int = 4) -> ir.Value:
    """The sum of the squares of an int8, scaled as RMSNorm scales it."""
    fine = graph.rescale(x, "i16", 1 << 30, 30 - left, input_zero=-8)
    squares = graph.rescale(graph.mul(fine, fine), "i32", 1 << 30, 30 + right)
    return graph.reduce("reduce_sum", squares, len(shape_of(x)) - 1)


@pytest.mark.parametrize(("row", "left"), [(64, 7), (86, 6), (24, 7)])
def test_every_form_of_a_sum_of_squares(row, left, monkeypatch):
    graph = Graph()
    module = graph.module(squared(graph, graph.input((1, 3, 1, row)), left))
    others = forms(module, "cheapest-reductions", monkeypatch)
    assert len(others) == 2
    check(module, others, ["ethos-u85-256"])


@pytest.mark.parametrize(("row", "left", "right"), [(63, 7, 4), (64, 8, 4), (64, 1, 4), (256, 7, 1)])
def test_a_sum_of_squares_stays_that_is_odd_saturates_rounds_or_is_large(row, left, right, monkeypatch):
    graph = Graph()
    module = graph.module(squared(graph, graph.input((1, 3, 1, row)), left, right))
    assert len(forms(module, "cheapest-reductions", monkeypatch)) == 1


@pytest.mark.parametrize(("shift", "count"), [(30, 2), (10, 1)])
def test_a_sum_goes_by_halves_where_no_part_can_leave_its_type(shift, count, monkeypatch):
    graph = Graph()
    wide = graph.rescale(graph.input((1, 3, 1, 24), "i16"), "i32", 1 << 30, shift)
    module = graph.module(graph.reduce("reduce_sum", wide, 3))
    others = forms(module, "cheapest-reductions", monkeypatch)
    assert len(others) == count
    if count == 2:
        check(module, others, ["ethos-u85-256"])


@pytest.mark.parametrize("element", ["i8", "i16", "i32"])
def test_every_form_of_what_is_repeated_or_put_together(element, monkeypatch):
    graph = Graph()
    x, y = graph.input((1, 5, 4, 16), element), graph.input((1, 1, 2, 8), element)
    parts = [graph.slice(x, (0, row, column, 8 * row), (1, 1, 2, 8)) for row, column in ((0, 0), (1, 2))]
    module = graph.module(graph.concat([parts[0], y, parts[1]], 2), graph.tile(y, (1, 3, 1, 1)))
    others = forms(module, "cheapest-moves", monkeypatch)
    assert len(others) == 3
    check(module, others, ["ethos-u85-256"])


def test_every_form_of_what_follows_from_rows(monkeypatch):
    graph = Graph()
    x = graph.input((1, 6, 1, 24))
    total = graph.reduce("reduce_sum", graph.rescale(x, "i32", 1 << 30, 30, input_zero=-9), 3)
    largest = graph.binary("sub", graph.const(np.full((1, 1, 1, 1), 17), "i32"), graph.unary("clz", total))
    column = graph.const(np.arange(6).reshape(1, 6, 1, 1), "i32")  # stays as it is
    module = graph.module(graph.binary("add", total, largest), graph.binary("add", total, column))
    others = forms(module, "pixels-to-channels", monkeypatch)
    assert len(others) == 2
    added = [[shape_of(op.results[0]) for op in walk(other) if op.name == "tosa.add"] for other in others]
    assert added == [[(1, 6, 1, 1)] * 2, [(1, 1, 1, 6), (1, 6, 1, 1)]]
    check(module, others, ["ethos-u85-256"])
