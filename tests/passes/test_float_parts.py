"""What carries `tosaic.float` stays f32 between casts, and a composite that integers do not reach is written out."""

import numpy as np
import pytest
from casts import Casts, Value, run

from tosaic.passes import run_phases
from tosaic.support.mlir import element_type, functions, ir, walk

X, Y = "i8:f32, 0.05:3", "i8:f32, 0.05:-7"
FLOAT = "{tosaic.float}"
SOFTMAX = """func.func private @softmax(%x: tensor<4x8x{e}>) -> tensor<4x8x{e}>
    attributes {{tosaic.composite = "softmax", tosaic.axis = 1 : i64}} {{
  %shift = "tosa.const"() <{{values = dense<0> : tensor<1xi8>}}> : () -> tensor<1xi8>
  %0 = tosa.reduce_max %x {{axis = 1 : i32}} : (tensor<4x8x{e}>) -> tensor<4x1x{e}>
  %1 = tosa.sub %x, %0 : (tensor<4x8x{e}>, tensor<4x1x{e}>) -> tensor<4x8x{e}>
  %2 = tosa.exp %1 : (tensor<4x8x{e}>) -> tensor<4x8x{e}>
  %3 = tosa.reduce_sum %2 {{axis = 1 : i32}} : (tensor<4x8x{e}>) -> tensor<4x1x{e}>
  %4 = tosa.reciprocal %3 : (tensor<4x1x{e}>) -> tensor<4x1x{e}>
  %5 = tosa.mul %2, %4, %shift : (tensor<4x8x{e}>, tensor<4x1x{e}>, tensor<1xi8>) -> tensor<4x8x{e}>
  return %5 : tensor<4x8x{e}>
}}""".format(e="f32")


def kinds(module: ir.Module) -> set[str]:
    """The ops of main with the element types of their results, without constants."""
    ops = [op for op in walk(functions(module)["main"]) if not op.name.startswith(("tosa.const", "func."))]
    return {f"{op.name.removeprefix('tosa.')} {element_type(op.results[0])}" for op in ops}


def softmax_between_casts(marked: bool) -> ir.Module:
    b = Casts()
    b.functions.append(SOFTMAX)
    x = b.input((4, 8), X)
    b.lines.append(f"%s = func.call @softmax({x[0]}) {FLOAT if marked else ''} : (tensor<4x8xf32>) -> tensor<4x8xf32>")
    return b.module(b.requantized(Value("%s", (4, 8)), "i8:f32, 0.00390625:-128"))


@pytest.mark.parametrize("name", ["sigmoid", "reverse", "abs", "floor", "reciprocal"])
def test_a_marked_op_stays_float(name):
    b = Casts()
    x = b.input((4, 64), X)
    attributes = "{axis = 1 : i32, tosaic.float}" if name == "reverse" else FLOAT
    module = b.module(b.requantized(b.op(f"tosa.{name}", [x], x[1], attributes), Y))
    run_phases(module)
    assert kinds(module) == {f"{name} f32", "cast f32", "sub f32", "mul f32", "add f32", "clamp f32", "cast i8"}
    assert "tosaic.float" not in str(module)


def test_only_the_marked_op_stays_float():
    b = Casts()
    x = b.input((4, 64), X)
    y = b.op("tosa.sigmoid", [b.requantized(b.op("tosa.tanh", [x], x[1], FLOAT), Y)], x[1])
    module = b.module(b.requantized(y, Y))
    run_phases(module)
    assert {"tanh f32", "table i8"} <= kinds(module)
    assert "sigmoid f32" not in kinds(module)


def test_a_marked_convolution_takes_its_weights_as_floats():
    b = Casts()
    x = b.input((1, 4, 4, 2), X)
    w = b.weights(np.random.default_rng(0).integers(-127, 128, (3, 1, 1, 2), np.int8), "i8:f32, 0.01")
    attributes = ("<{acc_type = f32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, "
                  "dilation = array<i64: 1, 1>}> {tosaic.float}")  # fmt: skip
    y = b.op("tosa.conv2d", [x, w, b.zeros((3,)), b.zeros(), b.zeros()], (1, 4, 4, 3), attributes)
    module = b.module(b.requantized(y, Y))
    run_phases(module)
    assert "conv2d f32" in kinds(module)
    assert "conv2d i32" not in kinds(module)


def test_a_marked_softmax_is_written_out_in_floats():
    module = softmax_between_casts(marked=True)
    data = np.random.default_rng(0).integers(-128, 128, (4, 8), np.int8)
    (got,) = run(module, [data])
    real = (data.astype(float) - 3) * 0.05
    powers = np.exp(real - real.max(1, keepdims=True))
    assert {"exp f32", "reduce_max f32", "reduce_sum f32", "reciprocal f32"} <= kinds(module)
    assert list(functions(module)) == ["main"]
    assert np.abs(got + 128.0 - powers / powers.sum(1, keepdims=True) * 256).max() <= 0.501


def test_an_unmarked_softmax_has_no_float():
    module = softmax_between_casts(marked=False)
    run_phases(module)
    assert not any(kind.endswith("f32") for kind in kinds(module))
