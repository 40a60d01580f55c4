"""Ranges of integers that a module takes."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.compiler.domain import Range, input_ranges, sample_within
from tosaic.support.errors import Error
from tosaic.support.mlir import parse

SHIFT = """
func.func @main(%a: tensor<2x40xi32>, %b: tensor<2x40xi32>) -> tensor<2x40xi32> {
  %0 = tosa.OP : (tensor<2x40xi32>, tensor<2x40xi32>) -> tensor<2x40xi32>
  return %0 : tensor<2x40xi32>
}
"""


@pytest.mark.parametrize(
    "op, ranges",
    [
        ("sub %a, %b", [Range(-(2**30), 2**30 - 1)] * 2),
        ("maximum %a, %b", [Range(-(2**31), 2**31 - 1)] * 2),
        ("arithmetic_right_shift %a, %b {round = false}", [Range(-(2**31), 2**31 - 1), Range(0, 31)]),
    ],
)
def test_ranges_are_the_widest_that_the_reference_takes(op, ranges):
    module = parse(SHIFT.replace("OP", op))
    assert input_ranges(module, [], 0) == ranges
    for array, (low, high, _) in zip(sample_within(module, ranges, 0), ranges, strict=True):
        assert array.dtype == np.int32 and array.shape == (2, 40)
        assert low <= array.min() and array.max() <= high


def test_states_are_what_they_are():
    module = parse(SHIFT.replace("OP", "add %a, %b"))
    state = np.full((2, 40), 2**31 - 2**20, np.int32)
    assert input_ranges(module, [state], 0) == [Range(-(2**20), 2**20 - 1)]


def test_a_module_that_takes_no_integers_says_what_would_do():
    text = """
    func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
      %big = "tosa.const"() <{values = dense<2147483647> : tensor<4xi32>}> : () -> tensor<4xi32>
      %0 = tosa.add %big, %big : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
      %1 = tosa.maximum %0, %x : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
      return %1 : tensor<4xi32>
    }"""
    with pytest.raises(Error, match="takes no integers that tosaic knows of") as error:
        input_ranges(parse(text), [], 0)
    assert "--calibration" in error.value.hint


SCATTER = """
func.func @main(%to: tensor<2x9x3xi8>, %at: tensor<2x7xi32>, %x: tensor<2x7x3xi8>) -> tensor<2x9x3xi8> {
  %0 = tosa.scatter %to, %at, %x : (tensor<2x9x3xi8>, tensor<2x7xi32>, tensor<2x7x3xi8>) -> tensor<2x9x3xi8>
  return %0 : tensor<2x9x3xi8>
}
"""


def test_indices_of_a_scatter_are_distinct():
    module = parse(SCATTER)
    ranges = input_ranges(module, [], 0)
    assert ranges == [Range(-128, 127), Range(0, 6, distinct=True), Range(-128, 127)]
    (_, indices, _) = sample_within(module, ranges, 0)
    assert (np.sort(indices) == np.arange(7)).all() and (indices[0] != indices[1]).any()


@pytest.mark.parametrize("kind", ["i4", "i8", "i48"])
def test_a_module_without_ops_takes_all(kind):
    module = parse(
        f"func.func @main(%x: tensor<2x5x{kind}>) -> tensor<2x5x{kind}> {{\n  return %x : tensor<2x5x{kind}>\n}}"
    )
    (found,) = input_ranges(module, [], 0)
    assert found is not None and found.high - found.low == 2 ** int(kind[1:]) - 1


SCALED = """
func.func @main(%x: tensor<3x4xi8>) -> tensor<3x4xi32> {
  %m = "tosa.const"() <{values = dense<1837017216> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<7> : tensor<1xi8>}> : () -> tensor<1xi8>
  %z = "tosa.const"() <{values = dense<-123> : tensor<1xi8>}> : () -> tensor<1xi8>
  %o = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %0 = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false,
    rounding_mode = SINGLE_ROUND, scale32 = true}
    : (tensor<3x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<3x4xi32>
  return %0 : tensor<3x4xi32>
}
"""


def test_a_range_lies_around_a_zero_point():
    (found,) = input_ranges(parse(SCALED), [], 0)
    assert found == Range(-128, -60)  # from the zero point no further than half of 2 to the shift


def test_trials_of_what_has_a_small_shift_read_what_the_model_does(succeed, tmp_path):
    (tmp_path / "scaled.mlir").write_text(SCALED)
    built = succeed("compile", tmp_path / "scaled.mlir", "--records", tmp_path / "r.db", "-o", tmp_path / "build")
    assert succeed("run", built["build"])["exact"]
