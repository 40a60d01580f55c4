"""The acceptance table against Vela itself, row by row, and its messages."""

import pytest
from op_rows import ROWS
from tosa_graphs import Graph

from tosaic.backends import reference
from tosaic.backends.ethos_u.acceptance import supported_ops, verdict
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.support.errors import BackendError
from tosaic.support.mlir import ir, walk


def refusals(module: ir.Module, accelerator: str) -> list[str]:
    ops = (op for op in walk(module) if op.name.startswith("tosa."))
    return [reason for op in ops if (reason := verdict(op, accelerator)) is not None]


# Vela takes these and computes something other than TOSA; test_op_rows.py shows that it does.
DIVERGENCES = (
    "rescale INEXACT_ROUND",
    "cast i16 to i8",
    "cast i32 to i8",
    "cast i32 to i16",
    "resize nearest x2 by x4",
)


@pytest.mark.parametrize("name", ROWS)
def test_the_verdict_is_velas(name: str):
    _, module = ROWS[name].graph()
    flatbuffer = reference.serialize(module)
    for accelerator in ("ethos-u55-128", "ethos-u85-256"):
        try:
            compile_region(flatbuffer, accelerator)
            taken = True
        except VelaRefusal:
            taken = False
        found = refusals(module, accelerator)
        assert taken or found, f"{accelerator}: Vela refuses what the table accepts"
        assert not (taken and found) or name.startswith(DIVERGENCES), f"{accelerator} takes it: {found}"


@pytest.mark.parametrize(
    ("row", "accelerator", "reason"),
    [
        ("depthwise_conv2d stride (4, 4)", "ethos-u55-128", "stride <= 3, got 4"),
        ("bitwise_and i8", "ethos-u65-512", "Ethos-U65 has no BITWISE_AND"),
        ("argmax 128 channels i8", "ethos-u55-64", "at most 127 channels, got 128"),
        ("argmax axis 1 i8", "ethos-u55-64", "the last axis, got axis 1 of 4"),
        ("reverse axis 3 i8", "ethos-u55-64", "the axis counted from the back in (-3, -2), got -1"),
        ("cast i32 to i8", "ethos-u55-32", "a widening CAST, got i32 to i8"),
        ("rescale INEXACT_ROUND i8 to i8", "ethos-u85-256", "SINGLE_ROUND or DOUBLE_ROUND, got INEXACT_ROUND"),
        ("matmul i16 to i16", "ethos-u55-128", "MATMUL needs i8, got i16"),
        ("conv3d depth 3 i8", "ethos-u55-128", "a kernel depth of 1, got 3"),
        ("conv2d computed weights 1x1", "ethos-u55-128", "constant weights and bias, got computed ones"),
        ("avg_pool2d 9x9 padded i8", "ethos-u55-128", "a kernel of at most 8x8 where there is padding, got 9x9"),
        ("resize bilinear x2 centred i8", "ethos-u55-128", "NEAREST_NEIGHBOR, got BILINEAR"),
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
    assert reasons[0] == "its RESCALE with the NPU, which needs SINGLE_ROUND or DOUBLE_ROUND, got INEXACT_ROUND"
    assert len(reasons) == 2


def test_floats_and_unknown_ops_are_refused():
    graph = Graph()
    x = graph.input((1, 4), "f32")
    module = graph.module(graph.unary("tanh", graph.binary("add", x, x)))
    assert refusals(module, "ethos-u85-256") == ["ADD needs i32, got f32", "no Ethos-U runs TANH"]


def test_an_unknown_accelerator_is_named():
    with pytest.raises(BackendError, match="no accelerator is called `ethos-u99-1`"):
        refusals(ROWS["abs i32"].graph()[1], "ethos-u99-1")


def test_the_listing_has_each_op_and_its_constraints():
    listing = supported_ops()
    assert "| ADD | i32 | i32 |  |" in listing
    assert "| GATHER | no | i8 i16 i32 |  |" in listing
    assert "U55, U65: stride <= 3" in listing
