import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.support.attributes import bool_of, enum_of, float_of, ints_of
from tosaic.support.mlir import constant_value, ir
from tosaic.support.tosa_builder import clamp, element, emit, rebuild, rescale, reshape, tensor, transpose, zero_point


@pytest.fixture
def x():
    """An i8 value of shape 2x3, with the place behind it to build at."""
    graph = Graph()
    value = graph.input((2, 3))
    with graph.location, ir.InsertionPoint(value.owner):
        yield value


def test_attributes_are_given_as_python_values(x):
    turned = emit("transpose", [x], (3, 2), "i8", perms=(1, 0)).owner
    assert str(turned.attributes["perms"]) == "array<i32: 1, 0>"
    reverse = emit("reverse", [x], (2, 3), "i8", axis=1).owner
    assert str(reverse.attributes["axis"]) == "1 : i32"
    assert enum_of(rescale(x, "i32", [1 << 30], [30]).owner, "rounding_mode") == "SINGLE_ROUND"
    assert str(emit("cast", [x], (2, 3), element("i32")).type) == "tensor<2x3xi32>"


def test_a_mark_goes_with_the_op(x):
    mark = {"tosaic.float": ir.UnitAttr.get()}
    for made in (reshape(x, (6,), **mark), transpose(x, (1, 0), **mark), clamp(x, -1, 1, **mark)):
        assert "tosaic.float" in made.owner.attributes


def test_what_changes_nothing_is_not_built(x):
    assert reshape(x, (2, 3)) == x
    assert transpose(x, (0, 1)) == x


@pytest.mark.parametrize(("multipliers", "per_channel"), [([1 << 30], False), ([1 << 30, 1 << 29, 3], True)])
def test_a_rescale_has_as_many_factors_as_channels(x, multipliers, per_channel):
    op = rescale(x, "i16", multipliers, [30] * len(multipliers), input_zp=3).owner
    assert bool_of(op, "per_channel") == per_channel
    assert [constant_value(operand).tolist() for operand in list(op.operands)[1:]] == [  # type: ignore[union-attr]
        multipliers,
        [30] * len(multipliers),
        [3],
        [0],
    ]


def test_factors_of_i48_have_16_bits():
    graph = Graph()
    wide = graph.input((4,), "i48")
    with graph.location, ir.InsertionPoint(wide.owner):
        op = rescale(wide, "i16", [1 << 14], [30]).owner
    assert str(op.operands[1].type) == "tensor<1xi16>"
    assert not bool_of(op, "scale32")


@pytest.mark.parametrize("kind", ["i4", "i8", "i16", "i32", "i48", "f32"])
def test_a_zero_point_is_of_every_type(x, kind):
    point = zero_point(-3, kind)
    assert str(point.type) == f"tensor<1x{kind}>"
    assert np.array_equal(constant_value(point), [-3])  # type: ignore[arg-type]


def test_a_clamp_is_of_integers_or_of_floats(x):
    assert str(clamp(x, -5, 5).owner.attributes["min_val"]) == "-5 : i8"
    real = clamp(emit("cast", [x], (2, 3), "f32"), -5, 5)
    assert float_of(real.owner, "max_val") == 5.0


def test_an_op_is_built_again_with_what_changed(x):
    image = reshape(x, (1, 2, 3, 1))
    pool = emit("max_pool2d", [image], (1, 2, 3, 1), "i8", kernel=(1, 1), stride=(1, 1), pad=(0, 0, 0, 0)).owner
    again = rebuild(pool.operation, [image], tensor((1, 4, 3, 1), "i8"), pad=(1, 1, 0, 0)).owner
    assert (ints_of(again, "pad"), ints_of(again, "kernel")) == ((1, 1, 0, 0), (1, 1))
    assert str(again.results[0].type) == "tensor<1x4x3x1xi8>"
