"""A module that breaks a phase's invariant is refused, and what breaks it is named."""

import re

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.passes import run_phase
from tosaic.passes.invariants import (
    check_for_npu,
    check_fused,
    check_layout,
    check_legal,
    check_placed,
    check_quantized,
)
from tosaic.support.errors import PassError
from tosaic.support.mlir import parse

MAIN = "func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {{ {body} return %x : tensor<4xi8> }}"
CALLED = """
func.func {visibility} @f(%x: tensor<4xi8>) -> tensor<4xi8> {attributes} {{
  %0 = tosa.clamp %x {{min_val = -5 : i8, max_val = 5 : i8 {on_op}}} : (tensor<4xi8>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}}
func.func private @g(%x: tensor<4xi8>) -> tensor<4xi8> attributes {{tosaic.processor = "{other}"}} {{
  %0 = tosa.clamp %x {{min_val = -3 : i8, max_val = 3 : i8, tosaic.op = 1 : i64}} : (tensor<4xi8>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}}
func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {{
  %0 = func.call @f(%x) : (tensor<4xi8>) -> tensor<4xi8>
  %1 = func.call @g(%0) : (tensor<4xi8>) -> tensor<4xi8>
  {more}
  return %1 : tensor<4xi8>
}}
"""


def placed(visibility="private", processor="cpu", on_op="", other="cpu", more="") -> str:
    attributes = f'attributes {{tosaic.processor = "{processor}"}}' if processor else ""
    return CALLED.format(visibility=visibility, attributes=attributes, on_op=on_op, other=other, more=more)


# --- legalize


def test_an_op_outside_tosa_is_named():
    module = parse(MAIN.format(body='%0 = math.absi %x : tensor<4xi8> loc("model.py":3:1)'))
    with pytest.raises(PassError) as caught:
        check_legal(module)
    assert "`math.absi` is left after legalize" in str(caught.value)
    assert "model.py" in str(caught.value)


def test_a_call_of_no_composite_is_refused():
    module = parse(
        "func.func private @f(%x: tensor<4xi8>) -> tensor<4xi8> { return %x : tensor<4xi8> }"
        "func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> { "
        "%0 = func.call @f(%x) : (tensor<4xi8>) -> tensor<4xi8> return %0 : tensor<4xi8> }"
    )
    with pytest.raises(PassError, match="phase `legalize` left an invalid module: a call of a function"):
        run_phase(module, "legalize")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("4xf16", "`f16` is not among i1, i4, i8, i16, i32, i48, f32"),
        ("4xi64", "cast it in the model: floats to float32, integers to int32"),
        ("?xf32", "its shape is not static"),
        ("*xf32", "export the model for inputs of one size"),
    ],
)
def test_types_that_no_target_computes_are_named(kind, reason):
    tensor = f"tensor<{kind}>"
    module = parse(f"func.func @main(%x: {tensor}) -> {tensor} {{ %0 = tosa.identity %x : ({tensor}) -> {tensor} "
                   f'loc("model.py":3:1) return %0 : {tensor} }}')  # fmt: skip
    with pytest.raises(PassError, match=f"`tosa.identity` has the type `{re.escape(tensor)}`") as caught:
        check_legal(module)
    assert "model.py" in str(caught.value)
    assert reason in str(caught.value)


def test_control_flow_is_refused():
    module = parse("""func.func @main(%x: tensor<4xf32>, %c: tensor<i1>) -> tensor<4xf32> {
      %0 = tosa.cond_if %c : tensor<i1> -> tensor<4xf32> {
        tosa.yield %x : tensor<4xf32>
      } else {
        %1 = tosa.abs %x : (tensor<4xf32>) -> tensor<4xf32>
        tosa.yield %1 : tensor<4xf32>
      }
      return %0 : tensor<4xf32> }""")
    with pytest.raises(PassError, match=r"`tosa.cond_if` cannot be compiled"):
        check_legal(module)


def test_a_fourier_transform_is_refused():
    module = parse("""func.func @main(%x: tensor<1x4x4xf32>) -> tensor<1x4x3xf32> {
      %0, %1 = tosa.rfft2d %x {local_bound = false} : (tensor<1x4x4xf32>) -> (tensor<1x4x3xf32>, tensor<1x4x3xf32>)
      return %0 : tensor<1x4x3xf32> }""")
    with pytest.raises(PassError, match=r"`tosa.rfft2d` cannot be compiled") as caught:
        check_legal(module)
    assert "nor a Fourier transform" in caught.value.why


def test_a_module_without_main_is_refused():
    with pytest.raises(PassError, match="the module has no function `main`"):
        run_phase(parse("func.func @f(%x: tensor<4xi8>) -> tensor<4xi8> { return %x : tensor<4xi8> }"), "legalize")


# --- quantize


def test_a_quantized_type_that_is_left_is_named():
    kind = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"
    module = parse(f"func.func @main(%x: {kind}) -> tensor<4xi8> {{ %0 = quant.scast %x : {kind} to tensor<4xi8> "
                   "return %0 : tensor<4xi8> }")  # fmt: skip
    with pytest.raises(PassError, match=r"`quant.scast` still has the type"):
        check_quantized(module)


def test_what_the_specification_forbids_is_answered_with_mlirs_words():
    body = "%0 = tosa.add %x, %x : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>"
    with pytest.raises(PassError, match="tosa-validate"):
        check_quantized(parse(MAIN.format(body=body)))


def test_a_rescale_of_inexact_rounding_is_refused():
    graph = Graph()
    module = graph.module(graph.requantize(graph.input((4,), "i32"), "i8", scale=0.1, rounding="INEXACT_ROUND"))
    with pytest.raises(PassError, match="a RESCALE is INEXACT_ROUND"):
        check_quantized(module)


def test_a_composite_that_is_left_is_refused():
    with pytest.raises(PassError, match="there are other functions than `main`") as caught:
        check_quantized(parse(placed()))
    assert caught.value.why == "f, g, main"


def test_a_mark_that_is_left_is_refused():
    body = "%0 = tosa.abs %y {tosaic.float} : (tensor<4xf32>) -> tensor<4xf32>"
    module = parse("func.func @main(%x: tensor<4xi8>, %y: tensor<4xf32>) -> tensor<4xi8> "
                   f"{{ {body} return %x : tensor<4xi8> }}")  # fmt: skip
    with pytest.raises(PassError, match=r"`tosa.abs` still carries `tosaic.float`"):
        check_quantized(module)


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        ("i8", "tosaic.scale = 0.5 : f64", "it has tosaic.scale"),
        ("f32", "tosaic.scale = 0.5 : f64, tosaic.zero_point = 0 : i64", "is an integer tensor with"),
        ("i8", "tosaic.scale = 0.0 : f64, tosaic.zero_point = 0 : i64", "`tosaic.scale` is 0.0"),
        ("i8", "tosaic.scale = 0x7FF0000000000000 : f64, tosaic.zero_point = 0 : i64", "`tosaic.scale` is inf"),
    ],
)
def test_annotations_of_main_are_whole(kind, attributes, message):
    tensor = f"tensor<4x{kind}>"
    for module in (
        parse(f"func.func @main(%x: {tensor} {{{attributes}}}) -> {tensor} {{ return %x : {tensor} }}"),
        parse(f"func.func @main(%x: {tensor}) -> ({tensor} {{{attributes}}}) {{ return %x : {tensor} }}"),
    ):
        with pytest.raises(PassError) as caught:
            check_quantized(module)
        assert message in str(caught.value) and "0 of main" in caught.value.where


def test_annotations_that_are_whole_pass():
    whole = "{tosaic.scale = 0.5 : f64, tosaic.zero_point = 3 : i64}"
    check_quantized(parse(f"func.func @main(%x: tensor<4xi8> {whole}, %i: tensor<2xi32>) -> (tensor<4xi8> {whole}) "
                          "{ return %x : tensor<4xi8> }"))  # fmt: skip


# --- layout


def test_transposes_in_a_row_are_refused():
    graph = Graph()
    x = graph.input((2, 3, 4))
    module = graph.module(graph.transpose(graph.transpose(x, (1, 2, 0)), (2, 1, 0)))
    with pytest.raises(PassError, match=r"`cancel` still applies to `tosa.transpose`"):
        check_layout(module)


def test_a_transpose_that_is_a_reshape_is_refused():
    graph = Graph()
    module = graph.module(graph.transpose(graph.input((1, 3, 4)), (1, 0, 2)))
    with pytest.raises(PassError, match=r"`to_reshape` still applies to `tosa.transpose`"):
        check_layout(module)


def test_transposes_with_reshapes_between_that_cancel_are_met():
    """Merging the reshapes brings the transposes together."""
    graph = Graph()
    first = graph.transpose(graph.input((2, 3, 4)), (1, 2, 0))
    there_and_back = graph.reshape(graph.reshape(first, (12, 2)), (3, 4, 2))
    module = graph.module(graph.transpose(there_and_back, (2, 0, 1)))
    run_phase(module, "layout")
    assert "transpose" not in str(module)


def test_what_layout_checks_stands_on_what_quantize_leaves():
    with pytest.raises(PassError, match="tosa-validate"):
        check_layout(parse(MAIN.format(body="%0 = tosa.add %x, %x : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>")))


# --- fuse, cpu


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("same_value", lambda graph, x: graph.slice(x, (0, 0), (2, 4))),
        ("rescale_without_effect", lambda graph, x: graph.requantize(x, "i8", scale=1.0)),
        ("clamp_without_effect", lambda graph, x: graph.clamp(x, -128, 127)),
        ("table_without_effect", lambda graph, x: graph.table(x, np.arange(-128, 128))),
        ("merge_reshapes", lambda graph, x: graph.reshape(graph.reshape(x, (8,)), (4, 2))),
        ("reshape_of_constant", lambda graph, x: graph.reshape(graph.const(np.zeros((2, 4)), "i8"), (8,))),
    ],
)
def test_an_op_that_gives_back_its_operand_is_refused(name, build):
    graph = Graph()
    module = graph.module(build(graph, graph.input((2, 4))))
    with pytest.raises(PassError, match=f"`{name}` still applies"):
        check_fused(module)
    for phase in ("fuse", "cpu"):
        run_phase(module, phase)


# --- npu


def test_a_rescale_that_could_be_looked_up_is_refused():
    graph = Graph()
    module = graph.module(graph.requantize(graph.clamp(graph.input((1, 4)), -5, 5), "i8", scale=0.7))
    with pytest.raises(PassError, match=r"`looked_up` still applies to `tosa.rescale`"):
        check_for_npu(module)
    run_phase(module, "npu")


def test_a_reduction_along_the_channels_is_refused():
    graph = Graph()
    module = graph.module(graph.reduce("reduce_max", graph.input((3, 4)), 1))
    with pytest.raises(PassError, match=r"`along_rows` still applies to `tosa.reduce_max`"):
        check_for_npu(module)
    run_phase(module, "npu")


# --- place


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (MAIN.format(body="%0 = tosa.abs %y : (tensor<4xi32>) -> tensor<4xi32>").replace(
            "%x: tensor<4xi8>", "%x: tensor<4xi8>, %y: tensor<4xi32>"), "`tosa.abs` is left in main after place"),
        (placed(visibility=""), "function `f` is not private"),
        (placed(processor=""), "function `f` has no processor"),
        (placed(processor="gpu"), "`tosaic.processor` is `gpu`"),
        (placed(more="%2 = func.call @f(%1) : (tensor<4xi8>) -> tensor<4xi8>"), "function `f` is called 2 times"),
        (placed(processor="npu"), "`tosa.clamp` has no `tosaic.op`"),
        (placed(other="npu"), "`tosa.clamp` has no `tosaic.reason`"),
        (placed(on_op=', tosaic.reason = "too large"'), "`tosa.clamp` has no `tosaic.reason`"),
    ],
)  # fmt: skip
def test_what_place_does_not_leave_is_refused(source, message):
    with pytest.raises(PassError) as caught:
        check_placed(parse(source))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        placed(),
        placed(on_op=', tosaic.reason = "x"', other="npu"),
        placed("private", "npu", ", tosaic.op = 0 : i64", "npu"),
    ],
)
def test_what_place_leaves_passes(source):
    check_placed(parse(source))
