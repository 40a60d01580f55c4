"""Modules that others wrote: read as they are, with variables and unsigned integers at the boundary of `main`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tosaic.backends.reference import evaluate, serialize
from tosaic.frontend import capture, read_tosa
from tosaic.passes import run_phases
from tosaic.support.errors import ModelError
from tosaic.support.functions import number_of_states
from tosaic.support.mlir import bytecode, functions, parse, walk

ADD = """
func.func @net(%x: tensor<2x3xi32> {tosa.tensor_name = "left hand"}, %y: tensor<2x3xi32> {tosa.tensor_name = "y"})
    -> (tensor<2x3xi32> {tosa.tensor_name = "sum"}) attributes {theirs = 1 : i32} {
  %0 = tosa.add %x, %y : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}
"""
STREAM = """
module {
  tosa.variable @"a/last" = dense<-128> : tensor<1x4xi8>
  func.func @main(%x: tensor<1x4xi8>) -> tensor<1x8xi8> {
    %0 = tosa.variable_read @"a/last" : tensor<1x4xi8>
    %1 = tosa.concat %0, %x {axis = 1 : i32} : (tensor<1x4xi8>, tensor<1x4xi8>) -> tensor<1x8xi8>
    tosa.variable_write @"a/last", %x : tensor<1x4xi8>
    return %1 : tensor<1x8xi8>
  }
}
"""
UNSIGNED = """
func.func @main(%x: tensor<1x256xui8>) -> tensor<1x256xui8> {
  %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %u = "tosa.const"() <{values = dense<-120> : tensor<1xi8>}> : () -> tensor<1xi8>
  %z = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %i = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %0 = tosa.rescale %x, %m, %s, %u, %i {input_unsigned = true, output_unsigned = false, per_channel = false,
    rounding_mode = SINGLE_ROUND, scale32 = true}
    : (tensor<1x256xui8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x256xi32>
  %1 = tosa.rescale %0, %m, %s, %i, %z {input_unsigned = false, output_unsigned = true, per_channel = false,
    rounding_mode = SINGLE_ROUND, scale32 = true}
    : (tensor<1x256xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x256xui8>
  return %1 : tensor<1x256xui8>
}
"""


def written(folder: Path, text: str, suffix: str) -> Path:
    path = folder / f"net{suffix}"
    if suffix == ".mlir":
        path.write_text(text)
    else:
        named = parse(text.replace("@net", "@main"))
        path.write_bytes(bytecode(named) if suffix == ".mlirbc" else serialize(named))
    return path


def test_a_flatbuffer_whose_names_are_no_text(tmp_path):
    path = written(tmp_path, ADD, ".tosa")
    before, name, after = path.read_bytes().rpartition(b"TosaOutput_0")
    path.write_bytes(before + name.replace(b"p", b"\xf0") + after)
    with pytest.raises(ModelError, match="cannot be read as a TOSA flatbuffer"):
        read_tosa(path)


@pytest.mark.parametrize("suffix", [".mlir", ".mlirbc", ".tosa"])
def test_a_module_is_read_as_it_is(tmp_path, suffix):
    file = read_tosa(written(tmp_path, ADD, suffix))
    assert list(functions(file.module)) == ["main"] and file.warnings == ()
    if suffix != ".tosa":
        assert (file.input_names, file.output_names) == (["left_hand", "y"], ["sum"])
    x, y = np.arange(6, dtype=np.int32).reshape(2, 3), np.full((2, 3), -7, np.int32)
    run_phases(file.module)
    np.testing.assert_array_equal(evaluate(file.module, [x, y])[0], x + y)


@pytest.mark.parametrize("suffix", [".mlir", ".tosa"])
def test_variables_are_states(tmp_path, suffix):
    file = read_tosa(written(tmp_path, STREAM, suffix))
    assert (file.input_names[-1], file.output_names[-1], file.warnings) == ("a_last", "a_last", ())
    assert number_of_states(functions(file.module)["main"]) == 1
    np.testing.assert_array_equal(file.states, [np.full((1, 4), -128)])
    x = np.arange(4, dtype=np.int8)[None]
    joined, state = evaluate(file.module, [x, *file.states])
    np.testing.assert_array_equal(joined, np.concatenate([*file.states, x], 1))
    np.testing.assert_array_equal(state, x)


def test_a_variable_that_is_only_read_is_a_constant(tmp_path):
    text = STREAM.replace('tosa.variable_write @"a/last", %x : tensor<1x4xi8>', "")
    file = read_tosa(written(tmp_path, text, ".mlir"))
    assert (file.input_names, file.states) == (["input_0"], ())
    (joined,) = evaluate(file.module, [np.zeros((1, 4), np.int8)])
    np.testing.assert_array_equal(joined, [[-128] * 4 + [0] * 4])


def test_a_variable_without_a_value_is_refused(tmp_path):
    with pytest.raises(ModelError, match="the variable `a/last` has no initial value"):
        read_tosa(written(tmp_path, STREAM.replace("= dense<-128> ", ""), ".mlir"))


BRANCH = """
func.func @main(%c: tensor<i1>, %d: tensor<i1>, %x: tensor<2x3xi8>) -> (tensor<2x3xi8>, tensor<i32>) {
  %k = "tosa.const"() <{values = dense<7> : tensor<i32>}> : () -> tensor<i32>
  %0, %1 = tosa.cond_if %c (%a = %x) : tensor<i1> (tensor<2x3xi8>) -> (tensor<2x3xi8>, tensor<i32>) {
  ^bb0(%a: tensor<2x3xi8>):
    %2 = tosa.cond_if %d : tensor<i1> -> tensor<2x3xi8> {
      %3 = tosa.reverse %a {axis = 1 : i32} : (tensor<2x3xi8>) -> tensor<2x3xi8>
      tosa.yield %3 : tensor<2x3xi8>
    } else {
      tosa.yield %x : tensor<2x3xi8>
    }
    tosa.yield %2, %k : tensor<2x3xi8>, tensor<i32>
  } else {
  ^bb0(%a: tensor<2x3xi8>):
    %4 = tosa.bitwise_not %a : (tensor<2x3xi8>) -> tensor<2x3xi8>
    %5 = tosa.bitwise_not %k : (tensor<i32>) -> tensor<i32>
    tosa.yield %4, %5 : tensor<2x3xi8>, tensor<i32>
  }
  return %0, %1 : tensor<2x3xi8>, tensor<i32>
}
"""


def test_branches_are_selected(tmp_path):
    file = read_tosa(written(tmp_path, BRANCH, ".mlir"))
    run_phases(file.module)
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    for c, d, want, number in [(True, True, x[:, ::-1], 7), (True, False, x, 7), (False, True, ~x, ~7)]:
        got, count = evaluate(file.module, [np.array(c), np.array(d), x])
        np.testing.assert_array_equal(got, want)
        assert count == number


def test_unsigned_integers_are_signed_ones_less_128(tmp_path):
    file = read_tosa(written(tmp_path, UNSIGNED, ".mlir"))
    stored = np.arange(-128, 128, dtype=np.int8)[None]
    wanted = np.clip(stored.astype(np.int32) + 128 - 136, 0, 255) - 128
    np.testing.assert_array_equal(evaluate(file.module, [stored])[0], wanted)
    assert "ui8" not in str(file.module)


@pytest.mark.parametrize(
    "name, content, what",
    [
        ("none.tosa", None, "there is no file"),
        ("bad.tosa", b"nothing of the kind", "cannot be read as a TOSA flatbuffer"),
        ("bad.mlir", b"func.func @main(", "cannot be read"),
        ("two.mlir", (ADD + ADD.replace("@net", "@other")).encode(), "does not hold one function"),
        ("bad.tflite", b"nothing", "bad.tflite"),
        ("bad.onnx", b"nothing", "bad.onnx"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, what):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=what):
        capture(str(tmp_path / name)) if name.endswith(".onnx") else read_tosa(tmp_path / name)


@pytest.mark.parametrize(
    "text, why",
    [
        ("module attributes {a = " + "[" * 100_000 + "]" * 100_000 + "} {}", "what reads it crashed, or needed more"),
        ("module {" * 20_000 + "}" * 20_000, "what reads it crashed, or needed more"),
        (ADD.replace("{theirs = 1 : i32}", "{theirs = " + "[" * 300 + "]" * 300 + "}"), "nested more than 256 levels"),
    ],
    ids=["brackets", "modules", "attribute"],
)
def test_what_is_nested_too_deeply_is_refused(tmp_path, text, why):
    (tmp_path / "deep.mlir").write_text(text)
    with pytest.raises(ModelError, match=r"deep\.mlir cannot be read") as error:
        read_tosa(tmp_path / "deep.mlir")
    assert why in error.value.why


def test_a_custom_op_is_refused_by_name(tmp_path):
    text = """
    func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {
      %0 = tosa.custom %x {domain_name = "ours", implementation_attrs = "", operator_name = "Fold"}
        : (tensor<4xi8>) -> tensor<4xi8>
      return %0 : tensor<4xi8>
    }"""
    with pytest.raises(ModelError, match="the custom op `Fold` of ours cannot be compiled"):
        read_tosa(written(tmp_path, text, ".mlir"))


def test_a_wake_word_is_one_function_of_integers(tmp_path):
    pytest.importorskip("tosa_converter_for_tflite", reason="the extra `tflite` is not installed")
    package = find_spec("pymicro_wakeword")
    if package is None or package.origin is None:
        pytest.skip("pymicro_wakeword, which ships .tflite models, is not installed")
    path = next(Path(package.origin).parent.rglob("*.tflite"))
    file = read_tosa(path)
    run_phases(file.module)
    assert file.states and not any("variable" in op.name for op in walk(file.module))
