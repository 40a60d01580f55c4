"""Values, attributes and functions as Python sees them."""

import pytest

from tosaic.support.attributes import bool_of, enum_of, float_of, int_of, ints_of, text_of
from tosaic.support.functions import body_of, callee_of, computing_ops, returned
from tosaic.support.mlir import functions, ir, parse
from tosaic.support.values import bit_width, is_argument, producer, tensor_operands, users

SOURCE = """
func.func private @f(%x: tensor<2x3xi8>) -> tensor<2x3xi8> attributes {tosaic.epsilon = 0.5 : f64} {
  return %x : tensor<2x3xi8>
}
func.func @main(%x: tensor<2x3xi8>) -> (tensor<3x2xi8>, tensor<2x3xi48>) {
  %factor = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %shift = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %wide = "tosa.const"() <{values = dense<0> : tensor<1xi48>}> : () -> tensor<1xi48>
  %shape = tosa.const_shape {values = dense<[3, 2]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %0 = func.call @f(%x) : (tensor<2x3xi8>) -> tensor<2x3xi8>
  %1 = tosa.rescale %0, %factor, %shift, %zero, %wide {scale32 = true, rounding_mode = SINGLE_ROUND,
    per_channel = false, input_unsigned = true, output_unsigned = false}
    : (tensor<2x3xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi48>) -> tensor<2x3xi48>
  %2 = tosa.reshape %0, %shape : (tensor<2x3xi8>, !tosa.shape<2>) -> tensor<3x2xi8>
  %3 = tosa.transpose %2 {perms = array<i32: 1, 0>} : (tensor<3x2xi8>) -> tensor<2x3xi8>
  %4 = tosa.reverse %3 {axis = 1 : i32} : (tensor<2x3xi8>) -> tensor<2x3xi8>
  return %2, %1 : tensor<3x2xi8>, tensor<2x3xi48>
}
"""


@pytest.fixture
def main():
    module = parse(SOURCE)
    yield functions(module)["main"]
    assert module.operation.verify()


def test_a_function_is_its_ops_without_constants(main):
    names = [op.name for op in computing_ops(main)]
    assert names == ["func.call", "tosa.rescale", "tosa.reshape", "tosa.transpose", "tosa.reverse"]
    assert len(list(body_of(main).operations)) == len(names) + 6
    assert [bit_width(value) for value in returned(main)] == [8, 48]


def test_a_producer_is_asked_for_by_name(main):
    call, rescale, reshape, *_ = computing_ops(main)
    assert producer(rescale.operands[0]) == producer(rescale.operands[0], "tosa.add", "func.call") == call
    assert producer(rescale.operands[0], "tosa.add") is None
    assert producer(call.operands[0]) is None and is_argument(call.operands[0])
    assert not is_argument(reshape.results[0])


def test_users_stand_once_for_each_use(main):
    call, rescale, reshape, *_, reverse = computing_ops(main)
    assert set(users(call.results[0])) == {rescale, reshape}
    assert [op.name for op in users(reshape.results[0])] == ["func.return", "tosa.transpose"]
    assert users(reverse.results[0]) == []


def test_shapes_are_no_tensors(main):
    _, rescale, reshape, *_ = computing_ops(main)
    assert len(tensor_operands(rescale)) == 5
    assert tensor_operands(reshape) == [reshape.operands[0]]


def test_attributes_are_python_values(main):
    call, rescale, _, transpose, reverse = computing_ops(main)
    assert callee_of(call) == "f" == text_of(functions_of(main)["f"], "sym_name")
    assert (bool_of(rescale, "scale32"), bool_of(rescale, "per_channel")) == (True, False)
    assert enum_of(rescale, "rounding_mode") == "SINGLE_ROUND"
    assert ints_of(transpose, "perms") == (1, 0)
    assert int_of(reverse, "axis") == 1
    assert float_of(functions_of(main)["f"], "tosaic.epsilon") == 0.5


def test_an_attribute_that_is_missing_or_of_another_kind_is_an_error(main):
    _, rescale, *_ = computing_ops(main)
    with pytest.raises(KeyError):
        int_of(rescale, "axis")
    with pytest.raises(ValueError, match="IntegerAttr"):
        int_of(rescale, "rounding_mode")


def functions_of(main: ir.Operation) -> dict[str, ir.Operation]:
    return {text_of(op, "sym_name"): op.operation for op in body_of(main.parent).operations}
