import re

import pytest

from tosaic.passes import PHASES, Timing, phases_of, run_phase, run_phases
from tosaic.passes.phases import check_legal, check_quantized
from tosaic.support.errors import PassError
from tosaic.support.mlir import parse

MAIN = "func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {{ {body} return %x : tensor<4xi8> }}"


def test_the_phases_in_order():
    assert list(PHASES) == ["legalize", "quantize", "layout", "fuse", "cpu", "npu"]
    assert [phase.name for phase in PHASES.values() if phase.exact] == ["layout", "fuse", "cpu", "npu"]
    assert phases_of(npu=True) == ["legalize", "quantize", "layout", "fuse", "npu"]
    assert phases_of(npu=False) == ["legalize", "quantize", "layout", "fuse", "cpu"]
    timing = Timing()
    run_phases(parse(MAIN.format(body="")), PHASES, [timing])
    assert set(timing.seconds) == {one.name for phase in PHASES.values() for one in phase.passes}


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


def test_a_module_without_main_is_refused():
    with pytest.raises(PassError, match="the module has no function `main`"):
        run_phase(parse("func.func @f(%x: tensor<4xi8>) -> tensor<4xi8> { return %x : tensor<4xi8> }"), "legalize")
