"""Programs with nested arguments, and files of TOSA, on the board: equal to the reference, under their own names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tosaic.api import Build

PROGRAM = f"{Path(__file__).parent / 'models' / 'programs.py'}:program"


@pytest.fixture(scope="module")
def build(succeed, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("build") / "m55"
    succeed("compile", PROGRAM, "-o", folder)
    return folder


def test_a_program_of_many_ops_is_exact(succeed, build, tmp_path):
    assert succeed("run", build, "--random", "3", "-o", tmp_path)["exact"]
    assert [tensor.name for tensor in Build.load(build).manifest.firmware.inputs] == ["image", "state_rows", "at"]
    assert [tensor.name for tensor in Build.load(build).manifest.firmware.outputs] == [
        "best_0", "best_1", "maps_0", "maps_1", "maps_2", "volume", "least_0", "least_1", "lower",
    ]  # fmt: skip


def test_the_same_with_an_npu(succeed, tmp_path):
    succeed("compile", PROGRAM, "--target", "corstone-300", "-o", tmp_path / "npu")
    assert succeed("run", tmp_path / "npu", "--random", "2", "-o", tmp_path)["exact"]


@pytest.mark.parametrize("target", ["cortex-m55", "corstone-300"])
def test_a_module_of_tosa_is_its_own_meaning(succeed, build, tmp_path, target):
    path = tmp_path / "net.mlirbc"
    path.write_bytes((build / "module.mlirbc").read_bytes())
    given = tmp_path / "given.npz"
    inputs = Build.load(build).manifest.firmware.inputs
    np.savez(given, *[np.zeros((1, *tensor.shape), tensor.dtype) for tensor in inputs])
    report = succeed("compile", path, "--target", target, "--calibration", given, "-o", tmp_path / "again")
    assert report["model"] == str(path)
    assert succeed("run", tmp_path / "again", "--random", "2", "-o", tmp_path)["exact"]
    assert succeed("verify", tmp_path / "again", "--inputs", "1")["right"]


def test_a_module_without_inputs(succeed, tmp_path):
    path = tmp_path / "net.mlir"
    path.write_text("""func.func @main() -> tensor<2x3xi32> {
      %0 = "tosa.const"() <{values = dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>}> : () -> tensor<2x3xi32>
      %1 = tosa.reverse %0 {axis = 1 : i32} : (tensor<2x3xi32>) -> tensor<2x3xi32>
      return %1 : tensor<2x3xi32>
    }""")
    succeed("compile", path, "-o", tmp_path / "net")
    assert succeed("run", tmp_path / "net", "-o", tmp_path)["exact"]
    np.testing.assert_array_equal(np.load(tmp_path / "output_0.npy"), [[[3, 2, 1], [6, 5, 4]]])


STREAM = """
module {
  tosa.variable @last = dense<5> : tensor<1x4xi8>
  func.func @main(%x: tensor<1x4xi8>) -> tensor<1x8xi8> {
    %0 = tosa.variable_read @last : tensor<1x4xi8>
    %1 = tosa.concat %0, %x {axis = 1 : i32} : (tensor<1x4xi8>, tensor<1x4xi8>) -> tensor<1x8xi8>
    tosa.variable_write @last, %x : tensor<1x4xi8>
    return %1 : tensor<1x8xi8>
  }
}
"""


def test_variables_of_a_module_are_kept_between_calls(succeed, refused, tmp_path):
    path = tmp_path / "net.mlir"
    path.write_text(STREAM)
    x = np.arange(12, dtype=np.int8).reshape(3, 1, 4)
    np.savez(tmp_path / "x.npz", x)
    succeed("compile", path, "-o", tmp_path / "net")
    assert succeed("run", tmp_path / "net", "--input", tmp_path / "x.npz", "-o", tmp_path)["exact"]
    before = np.concatenate([np.full((1, 1, 4), 5), x[:-1]])
    np.testing.assert_array_equal(np.load(tmp_path / "output_0.npy"), np.concatenate([before, x], 2))
    message = refused("compile", path, "--stream-input", "-o", tmp_path / "none")
    assert "the model keeps `last` from call to call" in message


@pytest.mark.parametrize("option", [("--exclude", "conv2d"), ("--min-sqnr", "3"), ("--activations", "int16")])
def test_what_needs_a_float_model_says_so(refused, build, tmp_path, option):
    message = refused("compile", build / "module.mlirbc", *option, "-o", tmp_path / "none")
    assert f"{option[0]} needs a float model" in message
