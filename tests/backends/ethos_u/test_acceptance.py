"""The reasons of the acceptance table; `test_op_rows.py` compares its verdicts with Vela's."""

import numpy as np
import pytest
from op_rows import RESIZES, ROWS
from tosa_graphs import Graph, random_input

from tosaic.backends import reference
from tosaic.backends.ethos_u.acceptance import refusal, supported_ops, suspicion
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import compile_region
from tosaic.backends.npu import EmulationError
from tosaic.compiler.verdicts import verdict
from tosaic.support.errors import BackendError
from tosaic.support.mlir import element_type, ir, shape_of, walk


def refusals(module: ir.Module, accelerator: str, judge=refusal) -> list[str]:
    ops = (op for op in walk(module) if op.name.startswith("tosa."))
    return [reason for op in ops if (reason := judge(op, accelerator)) is not None]


@pytest.mark.parametrize(
    ("row", "accelerator", "reason"),
    [
        ("depthwise_conv2d stride (4, 4)", "ethos-u55-128", "DEPTHWISE_CONV2D on Ethos-U55 needs stride <= 3, got 4"),
        ("bitwise_and i8", "ethos-u65-512", "Ethos-U65 has no BITWISE_AND"),
        ("argmax 128 channels i8", "ethos-u55-64", "ARGMAX on Ethos-U55 needs at most 127 channels, got 128"),
        ("argmax axis 1 i8", "ethos-u55-64", "ARGMAX on Ethos-U55 needs the last axis, got axis 1 of 4"),
        (
            "reverse axis 3 i8",
            "ethos-u55-64",
            "REVERSE on Ethos-U55 needs the axis counted from the back in (-3, -2), got -1",
        ),
        ("gather batch 2 i8", "ethos-u85-256", "GATHER on Ethos-U85 needs one batch, got 2"),
        ("scatter batch 2 i8", "ethos-u85-256", "SCATTER on Ethos-U85 needs one batch, got 2"),
        ("cast i32 to i8", "ethos-u55-32", "CAST on Ethos-U55 needs a widening CAST, got i32 to i8"),
        (
            "rescale INEXACT_ROUND i8 to i8",
            "ethos-u85-256",
            "RESCALE on Ethos-U85 needs SINGLE_ROUND or DOUBLE_ROUND, got INEXACT_ROUND",
        ),
        ("matmul i16 to i16", "ethos-u55-128", "MATMUL needs i8, got i16"),
        ("conv3d depth 3 i8", "ethos-u55-128", "CONV3D on Ethos-U55 needs a kernel depth of 1, got 3"),
        (
            "conv2d computed weights 1x1",
            "ethos-u55-128",
            "CONV2D on Ethos-U55 needs constant weights and bias, got computed ones",
        ),
        (
            "avg_pool2d 9x9 padded i8",
            "ethos-u55-128",
            "AVG_POOL2D on Ethos-U55 needs a kernel of at most 8x8 where there is padding, got 9x9",
        ),
        ("resize bilinear x2 centered i8", "ethos-u55-128", "RESIZE on Ethos-U55 needs NEAREST_NEIGHBOR, got BILINEAR"),
    ],
)
def test_reasons_are_precise(row: str, accelerator: str, reason: str):
    assert reason in refusals(ROWS[row].graph()[1], accelerator)


def test_a_wide_convolution_is_judged_with_its_rescale():
    graph = Graph()
    x = graph.input((1, 4, 4, 8), "i16")
    y = graph.conv2d(x, [[[[1] * 8]]], [0])
    module = graph.module(graph.requantize(y, "i16", 0.1, rounding="INEXACT_ROUND"))
    reasons = refusals(module, "ethos-u55-128")
    assert reasons[0] == (
        "CONV2D on Ethos-U55 needs its RESCALE with the NPU, which needs SINGLE_ROUND or DOUBLE_ROUND, "
        "got INEXACT_ROUND"
    )
    assert len(reasons) == 2


def test_floats_and_unknown_ops_are_refused():
    graph = Graph()
    x = graph.input((1, 4), "f32")
    module = graph.module(graph.unary("tanh", graph.binary("add", x, x)))
    assert refusals(module, "ethos-u85-256") == ["ADD needs i32, got f32", "no Ethos-U runs TANH"]


def test_an_unknown_accelerator_is_named():
    with pytest.raises(BackendError, match="no accelerator is called `ethos-u99-1`"):
        refusals(ROWS["abs i32"].graph()[1], "ethos-u99-1")


def test_the_listing_has_each_op_and_its_conditions():
    listing = {row["op"]: row for row in supported_ops()}
    assert listing["ABS"] == {"op": "ABS", "u55_u65": "i32", "u85": "i32", "conditions": "", "suspicions": ""}
    assert (listing["GATHER"]["u55_u65"], listing["GATHER"]["u85"]) == ("", "i8 i16 i32")
    assert "U55, U65: stride <= 3" in listing["DEPTHWISE_CONV2D"]["conditions"]
    assert all(not condition.startswith(" ") for row in listing.values() for condition in row["conditions"].split("; "))


def _doubled(g: Graph, x: ir.Value) -> ir.Value:
    return g.resize(x, "NEAREST_NEIGHBOR", *RESIZES["x4 aligned"])


def _transposed(g: Graph) -> ir.Value:
    y = g.table(g.transpose(g.input((1, 19, 2, 33)), (0, 3, 2, 1)), np.arange(-128, 128))
    weights = np.ones((5, 7, 19, 1))
    y = g.depthwise_conv2d(y, weights, np.zeros(19), pad=(3, 2, 9, 12), stride=(3, 2), dilation=(1, 2))
    return g.requantize(y, "i8", 0.01)


def _doubled_sum(g: Graph) -> ir.Value:
    y = g.transpose_conv2d(g.input((1, 4, 6, 8)), np.ones((8, 3, 3, 8)), np.zeros(8))
    y = g.reshape(g.requantize(y, "i8", np.linspace(0.01, 0.09, 8)), (1, 48, 1, 8))
    wide = [g.requantize(y, "i32", scale * 2**19) for scale in (0.5, 0.4)]
    return g.requantize(g.binary("add", *wide), "i8", 2.0**-19)


def _square(g: Graph) -> ir.Value:
    y = g.transpose(g.pool("max", g.input((1, 8, 8, 10)), (1, 1)), (0, 2, 1, 3))
    return g.reduce("reduce_max", y, 2, nan_mode="PROPAGATE")


def _reshaped_minimum(g: Graph) -> ir.Value:
    y = g.reshape(g.reduce("reduce_min", g.input((1, 13, 16, 13)), 2, nan_mode="PROPAGATE"), (1, 13, 13, 1))
    return g.reduce("reduce_max", y, 2, nan_mode="PROPAGATE")


def _reversed(g: Graph) -> ir.Value:
    y = g.table(g.unary("reverse", g.input((1, 40, 40, 32)), axis=1), np.arange(-128, 128))
    return g.pool("max", y, (3, 3))


def _sum_of_channels(g: Graph) -> ir.Value:
    y = g.requantize(g.input((1, 4, 6, 8)), "i8", np.linspace(0.1, 0.9, 8))
    y = g.slice(y, (0, 1, 1, 3), (1, 2, 3, 4))
    wide = [g.requantize(y, "i32", scale * 2**19) for scale in (0.5, 0.4)]
    return g.requantize(g.binary("add", *wide), "i8", 2.0**-19)


def _two_tables(g: Graph) -> ir.Value:
    rise = np.arange(-256, 257) * 100
    y = g.requantize(g.table(g.clamp(g.input((1, 6, 4, 8), "i16"), -30000, 30000), rise), "i16", 1 / 128)
    wide = [g.requantize(v, "i32", 1.0) for v in (y, g.input((1, 6, 4, 8), "i16"))]
    y = g.requantize(g.binary("minimum", *wide, nan_mode="PROPAGATE"), "i16", 1.0)
    return g.requantize(g.table(y, rise[::-1]), "i16", 1 / 128)


def _sum(g: Graph, a: ir.Value, b: ir.Value, scales: tuple[float, float], element: str = "i8") -> ir.Value:
    wide = [g.requantize(x, "i32", scale) for x, scale in zip((a, b), scales, strict=True)]
    return g.requantize(g.binary("add", *wide), element, 0.7 / max(scales))


def _product(g: Graph, scale: float | np.ndarray) -> ir.Value:
    return g.requantize(g.matmul(g.input((5, 9, 33)), g.input((5, 33, 12)), 3, 4), "i8", scale)


NEIGHBorS = {
    "RESCALE behind CONCAT": (
        lambda g: g.requantize(g.concat([g.input((1, 4, 6, 2)), g.input((1, 4, 6, 1))], 3), "i8", [0.5, 0.1, 0.9]),
        "another op between it and CONCAT",
    ),
    "RESCALE from i32 before CONCAT": (
        lambda g: g.concat([g.input((1, 7, 6, 3)), g.requantize(g.input((1, 7, 6, 10), "i32"), "i8", 0.01)], 3),
        "i8 and i16 before CONCAT, got i32 and i8",
    ),
    "sum with two scales before CONCAT": (
        lambda g: g.concat(
            [
                g.input((1, 7, 6, 3)),
                _sum(g, g.input((1, 7, 6, 10)), g.input((1, 7, 6, 10)), (0.3 * 2**19, 0.4 * 2**19)),
            ],
            3,
        ),
        "i8 and i16 before CONCAT, got i32 and i8",
    ),
    "ADD by two integers": (
        lambda g: _sum(g, g.input((1, 7, 6, 10)), g.input((1, 7, 6, 10)), (2.0, 3.0)),
        "one scale for both operands, or a scale that is no integer below 2^15, got 2 and 3",
    ),
    "two TABLEs of i16 in one chain on U85": (
        _two_tables,
        "an op that is not elementwise between it and the TABLE before",
    ),
    "RESCALE to i32 behind SLICE": (
        lambda g: g.requantize(g.slice(g.input((1, 4, 6, 8)), (0, 1, 1, 0), (1, 2, 3, 8)), "i32", 5.0),
        "i8 and i16 behind SLICE, got i32 and i8",
    ),
    "REDUCE_SUM behind SLICE": (
        lambda g: g.reduce("reduce_sum", g.slice(g.input((1, 4, 6, 8), "i32"), (0, 1, 1, 0), (1, 2, 3, 8)), 3),
        "an operand that is not cut out by a SLICE",
    ),
    "MATMUL behind SLICE": (
        lambda g: g.matmul(g.slice(g.input((2, 5, 16)), (0, 1, 0), (2, 3, 16)), g.input((2, 16, 7))),
        "operands that are not cut out by a SLICE",
    ),
    "MATMUL before CONCAT": (
        lambda g: g.concat([g.input((1, 5, 9, 8)), g.reshape(_product(g, 0.002), (1, 5, 9, 12))], 3),
        "a use other than CONCAT",
    ),
    "MATMUL before a RESCALE per channel on U85": (
        lambda g: _product(g, np.linspace(0.001, 0.003, 12)),
        "a RESCALE behind it with one scale for the whole tensor, got one per channel",
    ),
    "REDUCE_MAX before PAD": (
        lambda g: g.pad(
            g.reduce("reduce_max", g.input((1, 4, 9, 32)), 1, nan_mode="PROPAGATE"), (0, 0, 2, 3, 1, 2, 1, 2)
        ),
        "a use other than PAD",
    ),
    "REDUCE_MAX before a SLICE of all and PAD": (
        lambda g: g.pad(
            g.slice(
                g.reduce("reduce_max", g.input((1, 2, 1, 43)), 3, nan_mode="PROPAGATE"), (0, 0, 0, 0), (1, 2, 1, 1)
            ),
            (0, 0, 2, 1, 1, 1, 2, 1),
        ),
        "a use other than PAD",
    ),
    "RESIZE before CONCAT": (
        lambda g: g.concat([_doubled(g, g.requantize(g.input((1, 5, 5, 8)), "i8", 0.9)), g.input((1, 17, 17, 5))], 3),
        "a use other than CONCAT",
    ),
    "RESCALE before RESHAPE and two uses on U85": (_doubled_sum, "one elementwise use of its reshaped result"),
    "TRANSPOSE of equal axes": (_square, "axes of different sizes, got (1, 8, 8, 10)"),
    "REDUCE_MIN before RESHAPE": (
        _reshaped_minimum,
        "no RESHAPE beside it, nor a TRANSPOSE that keeps the order of the elements",
    ),
    "REVERSE before TABLE on U85": (_reversed, "a use other than TABLE"),
    "TRANSPOSE before TABLE on U65": (_transposed, "a use other than TABLE"),
    "RESCALE per channel before SLICE on U85": (
        _sum_of_channels,
        "no SLICE of the channels behind a scale per channel",
    ),
    "BITWISE_NOT behind RESCALE on U85": (
        lambda g: g.unary("bitwise_not", g.rescale(g.input((1, 4, 6, 8)), "i32", 1503238553, 28)),
        "no RESCALE from i8 before it",
    ),
    "CLZ behind RESCALE on U85": (
        lambda g: g.unary("clz", g.rescale(g.input((1, 4, 6, 8), "i16"), "i32", 1503238553, 28)),
        "no RESCALE from i16 before it",
    ),
    "padded pool of a batch behind SLICE": (
        lambda g: g.pool("max", g.slice(g.input((3, 8, 8, 4)), (0, 1, 1, 0), (3, 4, 4, 4)), (3, 3), pad=(1, 1, 1, 1)),
        "batch 1 or no padding behind SLICE",
    ),
}


@pytest.mark.parametrize("name", NEIGHBorS)
def test_neighbors_with_which_vela_goes_wrong(name: str):
    """Each is wrong on the NPU: suspected here, and shown different (or in error) on the emulator, alone and whole."""
    build, reason = NEIGHBorS[name]
    graph = Graph()
    module = graph.module(build(graph))
    accelerator = {"U85": "ethos-u85-256", "U65": "ethos-u65-256"}.get(name[-3:], "ethos-u55-128")
    assert reason in refusals(module, accelerator, suspicion)
    assert any(f"{reason}; Vela else computes it wrongly: " in why for why in refusals(module, accelerator, verdict))
    flatbuffer = reference.serialize(module)
    rng = np.random.default_rng(4)
    inputs = [
        random_input(rng, shape_of(x), str(element_type(x))) >> (8 if "32" in str(x.type) else 0) for x in graph.inputs
    ]
    try:
        found = emulate(compile_region(flatbuffer, accelerator), inputs).outputs
    except EmulationError:
        return
    assert (found[0] != reference.evaluate(flatbuffer, inputs)[0]).any()


UNFOUNDED = {
    "RESCALE of a tensor behind CONCAT": lambda g: g.requantize(
        g.concat([g.input((1, 4, 6, 2)), g.input((1, 4, 6, 1))], 3), "i8", 0.5
    ),
    "TRANSPOSE_CONV2D first in CONCAT": lambda g: g.concat(
        [
            g.requantize(
                g.transpose_conv2d(g.input((1, 4, 4, 8)), np.ones((4, 2, 2, 8)), np.zeros(4), stride=(2, 2)),
                "i8",
                [0.01, 0.02, 0.03, 0.04],
            ),
            g.input((1, 8, 8, 4)),
        ],
        3,
    ),
}


@pytest.mark.parametrize("name", UNFOUNDED)
def test_a_suspicion_that_no_execution_confirms_is_none(name: str):
    graph = Graph()
    module = graph.module(UNFOUNDED[name](graph))
    assert refusals(module, "ethos-u55-128", suspicion)
    assert not refusals(module, "ethos-u55-128", verdict)


SCALED_SUMS = {
    "i8 by an integer": ("i8", (20000.0, 20000.0)),
    "i8 by 2^19 and less": ("i8", (0.4 * 2**19, 2.0**19)),
    "i16 by an integer": ("i16", (9000.0, 9000.0)),
    "i16 by 2^14 and less": ("i16", (2.0**14, 0.4 * 2**14)),
}


@pytest.mark.parametrize("name", SCALED_SUMS)
def test_a_sum_in_one_kernel_stands_between_slice_concat_and_pad(name: str):
    element, scales = SCALED_SUMS[name]
    graph = Graph()
    shape = (1, 7, 6, 10)
    cut = graph.slice(graph.input((1, 9, 9, 12), element), (0, 1, 2, 1), shape)
    total = _sum(graph, cut, graph.input(shape, element), scales, element)
    joined = graph.concat([graph.input((1, 7, 6, 3), element), total], 3)
    whole = _sum(graph, graph.input(shape, element), graph.input(shape, element), scales, element)
    padded = graph.pad(whole, [0, 0, *[1] * 6])
    module = graph.module(joined, padded)
    assert not refusals(module, "ethos-u55-128", suspicion)
    flatbuffer = reference.serialize(module)
    inputs = [random_input(np.random.default_rng(4), shape_of(x), element) for x in graph.inputs]
    found = emulate(compile_region(flatbuffer, "ethos-u55-128"), inputs).outputs
    for array, expected in zip(found, reference.evaluate(flatbuffer, inputs), strict=True):
        np.testing.assert_array_equal(array, expected)
