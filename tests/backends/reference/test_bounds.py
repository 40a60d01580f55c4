"""Floats are judged by TOSA's error bounds: what another order of a sum gives is right, what is wrong is named."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.backends.reference import UnknownBoundError, beyond_bounds, evaluate
from tosaic.support.mlir import functions, parse

RNG = np.random.default_rng(0)
DENSE = """
func.func @main(%x: tensor<1x8x300xf32>, %w: tensor<1x300x4xf32>) -> tensor<1x8x4xi8> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %s = "tosa.const"() <{values = dense<3.7> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %n = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.matmul %x, %w, %z, %z : (tensor<1x8x300xf32>, tensor<1x300x4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x8x4xf32>
  %1 = tosa.mul %0, %s, %n : (tensor<1x8x4xf32>, tensor<1x1x1xf32>, tensor<1xi8>) -> tensor<1x8x4xf32>
  %2 = tosa.clamp %1 {min_val = -128.0 : f32, max_val = 127.0 : f32} : (tensor<1x8x4xf32>) -> tensor<1x8x4xf32>
  %3 = tosa.cast %2 : (tensor<1x8x4xf32>) -> tensor<1x8x4xi8>
  return %3 : tensor<1x8x4xi8>
}
"""  # noqa: E501
POINTWISE = """
func.func @main(%x: tensor<256xf32>) -> tensor<256xf32> {{
  %0 = tosa.{op} %x : (tensor<256xf32>) -> tensor<256xf32>
  return %0 : tensor<256xf32>
}}
"""
FUNCTIONS = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "log": lambda x: np.log(np.abs(x)),
    "rsqrt": lambda x: 1 / np.sqrt(np.abs(x)),
}


def judged(text: str, inputs, outputs) -> str:
    module = parse(text)
    (function,) = functions(module).values()
    return beyond_bounds(function, inputs, outputs)


def test_a_sum_in_another_order_is_allowed_and_a_wrong_one_named():
    x, w = (RNG.normal(size=shape).astype(np.float32) for shape in ((1, 8, 300), (1, 300, 4)))
    product = np.zeros((8, 4), np.float32)
    for k in reversed(range(300)):
        product += x[0, :, k, None] * w[0, k]
    ours = np.clip(np.rint(product * np.float32(3.7)), -128, 127).astype(np.int8)[None]
    assert judged(DENSE, [x, w], [ours]) == ""
    wrong = ours.copy()
    wrong[0, 5, 2] ^= 4
    assert judged(DENSE, [x, w], [wrong]).startswith(f"output 0[0, 5, 2] is {wrong[0, 5, 2]}, TOSA allows")


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions(op):
    x = RNG.normal(size=256).astype(np.float32)
    x = np.abs(x) if op in ("log", "rsqrt") else x
    real = FUNCTIONS[op](x.astype(np.float64)).astype(np.float32)
    assert judged(POINTWISE.format(op=op), [x], [np.nextafter(real, np.float32(9))]) == ""
    assert "(256 of 256 are outside)" in judged(POINTWISE.format(op=op), [x], [real * np.float32(1.0001)])


def test_what_is_defined_to_the_bit_has_one_value():
    x = RNG.normal(size=256).astype(np.float32)
    text = POINTWISE.format(op="floor")
    (right,) = evaluate(text, [x])
    assert judged(text, [x], [right]) == ""
    assert "TOSA allows" in judged(text, [x], [right + 1])


def test_an_op_without_a_bound_here_is_named():
    x = RNG.normal(size=256).astype(np.float32)
    with pytest.raises(UnknownBoundError, match=r"tosa\.sin of floats"):
        judged(POINTWISE.format(op="sin"), [x], [x])
