import numpy as np

from tosaic.backends.reference import evaluate
from tosaic.compiler.trial_inputs import wide_kernel_inputs
from tosaic.passes import random_inputs, run_phase
from tosaic.support.mlir import parse

# A sum of whole rows is a kernel of its own, and what shifts it reads i32 of a small range.
SHIFTED_SUMS = """
func.func @main(%a: tensor<4x8xi8>) -> tensor<4x1xi32> {
  %zero32 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %zero8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %one = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %shift = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %wide = tosa.rescale %a, %one, %shift, %zero8, %zero32 {input_unsigned = false, output_unsigned = false,
    per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true}
    : (tensor<4x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<4x8xi32>
  %sum = tosa.reduce_sum %wide {axis = 1 : i32} : (tensor<4x8xi32>) -> tensor<4x1xi32>
  %zeros = tosa.clz %sum : (tensor<4x1xi32>) -> tensor<4x1xi32>
  %magnitude = tosa.abs %sum : (tensor<4x1xi32>) -> tensor<4x1xi32>
  %shifted = tosa.logical_left_shift %magnitude, %zeros : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x1xi32>
  return %shifted : tensor<4x1xi32>
}
"""


def test_wide_arguments_are_what_the_whole_model_computes() -> None:
    placed = parse(SHIFTED_SUMS)
    run_phase(placed, "place")
    inputs = wide_kernel_inputs(placed, random_inputs(placed, 3))
    (data,) = random_inputs(placed, 3)
    sums = data.astype(np.int32).sum(1, keepdims=True)
    assert any(np.array_equal(sums, array) for arrays in inputs.values() for array in arrays)
    assert not any(array.dtype == np.int8 and len(arrays) == 1 for arrays in inputs.values() for array in arrays)


def test_the_model_stays_as_it_was() -> None:
    placed = parse(SHIFTED_SUMS)
    run_phase(placed, "place")
    data = random_inputs(placed, 3)
    before = evaluate(placed, data)
    wide_kernel_inputs(placed, random_inputs(placed, 3))
    assert np.array_equal(before[0], evaluate(placed, data)[0])
