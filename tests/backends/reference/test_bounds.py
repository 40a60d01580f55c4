"""Floats are judged by TOSA's error bounds: what another order of a sum gives is right, what is wrong is named."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import distribution

import numpy as np
import pytest

from tosaic.backends.reference import UnknownBoundError, beyond_bounds, evaluate
from tosaic.backends.reference.bounds import allowed
from tosaic.backends.reference.model import evaluate_precisely
from tosaic.support.functions import body_of
from tosaic.support.mlir import functions, parse, shape_of

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
ZERO = '%z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>'


def one(op: str, *types: str, attributes: str = "") -> str:
    """A module of one op; its last type is the result's."""
    arguments = ", ".join(f"%a{number}: {kind}" for number, kind in enumerate(types[:-1]))
    names = ", ".join([*(f"%a{number}" for number in range(len(types) - 1)), *attributes.split("|")[0].split()])
    kinds = ", ".join([*types[:-1], *["tensor<1xf32>"] * len(attributes.split("|")[0].split())])
    return f"""
func.func @main({arguments}) -> {types[-1]} {{
  {ZERO}
  %0 = tosa.{op} {names} {attributes.split("|")[-1]} : ({kinds}) -> {types[-1]}
  return %0 : {types[-1]}
}}
"""


def absolute(**info) -> dict:
    return {"mode": "ABS_ERROR", "abs_error_info": info}


def ulps(count: float) -> dict:
    return {"mode": "ULP", "ulp_info": {"ulp": count}}


def dot(products: int) -> dict:
    bound = {"s": 0, "ksb": products, "abs_bound": 6 * products, "variance_error_bound": 1e9}
    return {"mode": "DOT_PRODUCT", "dot_product_info": bound}


VECTOR, IMAGE = "tensor<256xf32>", "tensor<1x5x6x3xf32>"
WINDOW = "pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>"
CONVOLUTION = f"%z %z | {{acc_type = f32, {WINDOW}, dilation = array<i64: 1, 1>}}"
# The op, the types of its operands and its result, what stands behind, and how the conformance suite judges it (its
# `tosa_test_gen.py` for f32).
OPS = [
    ("exp", (VECTOR,) * 2, "", absolute(base_bound=3)),
    ("sigmoid", (VECTOR,) * 2, "", absolute()),
    ("tanh", (VECTOR,) * 2, "", absolute(base_bound=12, lower_bound=0.5)),
    ("log", (VECTOR,) * 2, "", absolute(lower_bound=0.5)),
    ("sin", (VECTOR,) * 2, "", absolute(base_bound=2, bound_as_magnitude=True, normal_divisor=2,
                                        max_compare=np.pi * 2.0**-126)),
    ("cos", (VECTOR,) * 2, "", absolute(base_bound=1, bound_as_magnitude=True, normal_divisor=2)),
    ("pow", (VECTOR,) * 3, "", {"mode": "PRECOMPUTED"}),
    ("erf", (VECTOR,) * 2, "", ulps(5)),
    ("rsqrt", (VECTOR,) * 2, "", ulps(2)),
    ("reciprocal", (VECTOR,) * 2, "", ulps(1)),
    ("matmul", ("tensor<1x16x5xf32>", "tensor<1x5x16xf32>", "tensor<1x16x16xf32>"), "%z %z |", dot(5)),
    ("conv2d", (IMAGE, "tensor<4x3x3x3xf32>", "tensor<4xf32>", "tensor<1x5x6x4xf32>"), CONVOLUTION, dot(28)),
    ("depthwise_conv2d", (IMAGE, "tensor<3x3x3x2xf32>", "tensor<6xf32>", "tensor<1x5x6x6xf32>"), CONVOLUTION, dot(10)),
    ("transpose_conv2d", (IMAGE, "tensor<4x2x2x3xf32>", "tensor<4xf32>", "tensor<1x6x7x4xf32>"),
     "%z %z | {acc_type = f32, out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}", dot(13)),
    ("avg_pool2d", (IMAGE,) * 2, f"%z %z | {{acc_type = f32, kernel = array<i64: 3, 3>, {WINDOW}}}", dot(9)),
    ("reduce_sum", ("tensor<7x50xf32>", "tensor<1x50xf32>"), "| {axis = 0 : i32}", dot(7)),
    ("reduce_product", ("tensor<7x50xf32>", "tensor<1x50xf32>"), "| {axis = 0 : i32}",
     {"mode": "REDUCE_PRODUCT", "reduce_product_info": {"n": 7}}),
]  # fmt: skip


def judged(text: str, inputs, outputs) -> str:
    module = parse(text)
    (function,) = functions(module).values()
    return beyond_bounds(function, inputs, outputs)


def compliant(compliance: dict, result, bounds, output, folder) -> bool:
    """What TOSA's own verifier says of an output."""
    tensor = compliance | {"data_type": "FP32", "shape": output.shape}
    described = {"ofm_name": ["out"], "meta": {"compliance": {"version": "1", "tensors": {"out": tensor}}}}
    (folder / "desc.json").write_text(json.dumps(described))
    for name, array in (("ref", result), ("bnd", bounds), ("imp", output)):
        np.save(folder / f"{name}.npy", array)
    files = [f"--{name}_result_file={folder / f'{name}.npy'}" for name in ("ref", "bnd", "imp")]
    program = distribution("tosa-tools").locate_file("bin/tosa_verify")
    done = subprocess.run([str(program), f"--test_desc={folder / 'desc.json'}", *files], capture_output=True, text=True)
    assert done.returncode in (0, 2), done.stderr
    return done.returncode == 0


@pytest.mark.parametrize(("op", "types", "attributes", "compliance"), OPS, ids=[row[0] for row in OPS])
def test_just_inside_of_a_bound_passes_and_just_outside_fails_as_the_verifier_of_tosa_says(
    op, types, attributes, compliance, tmp_path
):
    text = one(op, *types, attributes=attributes)
    module = parse(text)
    (function,) = functions(module).values()
    inputs = [RNG.normal(size=shape_of(value)).astype(np.float32) for value in body_of(function).arguments]
    inputs = [np.abs(x) for x in inputs] if op in ("log", "rsqrt", "pow") else inputs
    result, bounds = evaluate_precisely(module, inputs)
    (range_,) = allowed(function, inputs)
    places = [tuple(RNG.integers(0, result.shape)) for _ in range(3)]
    for end, away in ((range_.low, -np.inf), (range_.high, np.inf)):
        for place in places:
            output = result.astype(np.float32)
            output[place] = end[place]
            while not (output[place] - end[place]) * np.sign(away) <= 0:
                output[place] = np.nextafter(output[place], -np.float32(away))
            assert judged(text, inputs, [output]) == ""
            assert compliant(compliance, result, bounds, output, tmp_path)
            output[place] = np.nextafter(output[place], np.float32(away))
            number = ", ".join(map(str, place))
            assert judged(text, inputs, [output]).startswith(f"output 0[{number}] is {output[place]}, TOSA allows")
            assert not compliant(compliance, result, bounds, output, tmp_path)


def test_a_resize_may_miss_by_a_share_of_the_largest_input():
    resize = """
func.func @main(%x: tensor<1x3x3x1xf32>) -> tensor<1x5x5x1xf32> {
  %scale = tosa.const_shape {values = dense<[4, 2, 4, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %offset = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
  %border = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
  %0 = tosa.resize %x, %scale, %offset, %border {mode = BILINEAR}
      : (tensor<1x3x3x1xf32>, !tosa.shape<4>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<1x5x5x1xf32>
  return %0 : tensor<1x5x5x1xf32>
}
"""
    x = np.linspace(-1, 2, 9, dtype=np.float32).reshape(1, 3, 3, 1)
    (right,) = evaluate(resize, [x])
    assert judged(resize, [x], [right + np.float32(0.0119)]) == ""
    assert "(25 of 25 are outside)" in judged(resize, [x], [right + np.float32(0.0121)])


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


# What follows a function in its kernel, and a value of x where the function's error decides what comes out.
CHAINS = {
    "selected": ("""%1 = tosa.greater %0, %c : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xi1>
      %2 = tosa.logical_not %1 : (tensor<4xi1>) -> tensor<4xi1>
      %3 = tosa.select %2, %x, %0 : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>""", np.e, 1.0),
    "folded": ("""%1 = tosa.sub %0, %c : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
      %2 = tosa.abs %1 : (tensor<4xf32>) -> tensor<4xf32>
      %3 = tosa.cos %2 : (tensor<4xf32>) -> tensor<4xf32>""", np.e, 1.0),
    "a pole": ("""%1 = tosa.sub %0, %c : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
      %3 = tosa.reciprocal %1 : (tensor<4xf32>) -> tensor<4xf32>""", np.e, 1.0),
}  # fmt: skip


def chain(name: str) -> str:
    steps, limit, _ = CHAINS[name]
    return f"""
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %c = "tosa.const"() <{{values = dense<{limit:.9e}> : tensor<1xf32>}}> : () -> tensor<1xf32>
  %0 = tosa.exp %x : (tensor<4xf32>) -> tensor<4xf32>
      {steps}
  return %3 : tensor<4xf32>
}}
"""


def test_where_an_error_may_turn_a_comparison_either_value_is_right():
    x = np.array([1, 1, 0, 2], np.float32)
    exp = np.exp(x.astype(np.float64)).astype(np.float32)
    either = np.array([exp[0], x[1], x[2], exp[3]])
    assert judged(chain("selected"), [x], [either]) == ""
    assert "output 0[3] is 2.0" in judged(chain("selected"), [x], [np.array([exp[0], x[1], x[2], x[3]])])


def test_errors_are_carried_through_what_turns_and_through_poles():
    x = np.array([1, 0, 2, 3], np.float32)
    folded = np.cos(np.abs(np.exp(x.astype(np.float64)) - np.e))
    assert judged(chain("folded"), [x], [folded.astype(np.float32)]) == ""
    assert "output 0[1]" in judged(chain("folded"), [x], [(folded + 0.01 * (x == 0)).astype(np.float32)])
    poles = 1 / (np.exp(x.astype(np.float64)) - np.float32(np.e))
    poles[0] = -1e9
    assert judged(chain("a pole"), [x], [poles.astype(np.float32)]) == ""
    assert "output 0[1]" in judged(chain("a pole"), [x], [(poles * (1 + 0.001 * (x == 0))).astype(np.float32)])


INTEGERS = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xi8> {
  %t = "tosa.const"() <{values = dense<TABLE> : tensor<256xi8>}> : () -> tensor<256xi8>
  %0 = tosa.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %1 = tosa.cast %0 : (tensor<4xf32>) -> tensor<4xi8>
  %2 = tosa.table %1, %t : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
  return %2 : tensor<4xi8>
}
""".replace("TABLE", str([i * 37 % 256 - 128 for i in range(256)]))


def test_integers_behind_a_function_may_be_any_that_its_error_allows():
    x = np.array([np.log(2.5), 0, 1, 2], np.float32)
    table = np.array([i * 37 % 256 - 128 for i in range(256)], np.int8)
    low, high = (table[128 + np.array([edge, 1, 3, 7])] for edge in (2, 3))
    assert judged(INTEGERS, [x], [low]) == judged(INTEGERS, [x], [high]) == ""
    assert "output 0[2]" in judged(INTEGERS, [x], [low + np.array([0, 0, 1, 0], np.int8)])


def test_what_is_subnormal_may_be_flushed_and_what_is_not_may_not():
    x = np.array([-87.5] * 128 + [-80] * 128, np.float32)
    right = np.exp(x.astype(np.float64)).astype(np.float32)
    assert judged(POINTWISE.format(op="exp"), [x], [np.where(x < -87, 0, right)]) == ""
    assert "(128 of 256" in judged(POINTWISE.format(op="exp"), [x], [np.zeros_like(x)])


def test_what_is_defined_to_the_bit_has_one_value():
    x = RNG.normal(size=256).astype(np.float32)
    text = POINTWISE.format(op="floor")
    (right,) = evaluate(text, [x])
    assert judged(text, [x], [right]) == ""
    assert "TOSA allows" in judged(text, [x], [right + 1])


def test_an_op_without_a_bound_here_is_named():
    x = RNG.normal(size=(1, 4, 4)).astype(np.float32)
    text = """
func.func @main(%x: tensor<1x4x4xf32>) -> tensor<1x4x3xf32> {
  %0, %1 = tosa.rfft2d %x : (tensor<1x4x4xf32>) -> (tensor<1x4x3xf32>, tensor<1x4x3xf32>)
  return %0 : tensor<1x4x3xf32>
}
"""
    with pytest.raises(UnknownBoundError, match=r"tosa\.rfft2d of floats"):
        judged(text, [x], [x])
