"""Weights of several calls lie in one place, and the program stays exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.sharing import pack_alike
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.compiler.options import Tuning
from tosaic.compiler.tuning import Tuner
from tosaic.support.mlir import functions, parse
from tosaic.target_files.ready import find_target

OF_HEAD, OF_WIDE, OF_TABLE = 32 * 32, 32 * 32 * 9, 256 * 32
BESIDE = 4096
"""Bytes of all other constants, at most."""
OTHERS_OF_TIED = 32 * 32 + 256 * (4 + 4 + 4 + 2) + 1024
"""The matrix inside, a bias, a multiplier, a shift and a scale of each row, and what the inner layer has of these."""


def constants(folder) -> int:
    files = [file for file in (folder / "constants").iterdir() if not file.name.startswith("selftest")]
    return sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("options", [[], ["--kernels", "cmsis-nn"]], ids=["all", "cmsis-nn"])
def test_weights_of_two_calls_are_kept_once(succeed, tmp_path, options):
    succeed("compile", f"{NETS}:pyramid", *options, "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    assert OF_HEAD + OF_WIDE < constants(tmp_path / "build") < OF_HEAD + OF_WIDE + BESIDE
    assert succeed("run", tmp_path / "build", "--random", 2)["exact"]
    kernels = [kernel.symbol for kernel in Build.load(tmp_path / "build").manifest.kernels]
    report = Path(*succeed("report", tmp_path / "build")["files"]).read_text()
    assert any(symbol.endswith("_shared") for symbol in kernels)
    assert all(f"void {symbol}(" in report for symbol in kernels)


@pytest.mark.parametrize("options", [[], ["--kernels", "cmsis-nn"]], ids=["all", "cmsis-nn"])
def test_a_table_that_is_a_matrix_is_kept_once(succeed, tmp_path, options):
    succeed("compile", f"{NETS}:tied", *options, "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    assert OF_TABLE < constants(tmp_path / "build") < OF_TABLE + OTHERS_OF_TIED
    assert succeed("run", tmp_path / "build", "--random", 2)["exact"]


def test_a_kernel_changes_a_knob_where_no_other_packs_weights_as_it_does(tmp_path):
    """Seven channels beside each other do not divide a block of 64, so a lookup cannot read their order."""
    table = np.random.default_rng(0).integers(-127, 128, (3200, 288)).astype(np.int8)
    modules = {"lookup": parse(lookup(table)), "head": parse(head(table))}
    with Tuner(find_target("cortex-m55"), Tuning(records=tmp_path / "records.db"), None) as tuner:
        tasks = {name: KernelTask.of(functions(module)["main"], CORE) for name, module in modules.items()}
        tasks = {name: task.at(tuner.site()) for name, task in tasks.items()}
        tuner.prove(tasks)
        chosen = tuner.choose(tasks)
        alike = tuner.packed_alike(chosen)
    assert (chosen["head"].schedule["width"], alike["head"].schedule["width"]) == (7, 4)
    assert pack_alike(alike["lookup"].source, alike["head"].source)
    assert not pack_alike(chosen["lookup"].source, chosen["head"].source)


def written(values: np.ndarray) -> str:
    return f'dense<"0x{values.tobytes().hex()}"> : tensor<{"x".join(map(str, values.shape))}xi8>'


def lookup(table: np.ndarray) -> str:
    rows, width = table.shape
    return f"""func.func @main(%i: tensor<1x1xi32>) -> tensor<1x1x{width}xi8> {{
      %t = "tosa.const"() <{{values = {written(table[None])}}}> : () -> tensor<1x{rows}x{width}xi8>
      %y = tosa.gather %t, %i : (tensor<1x{rows}x{width}xi8>, tensor<1x1xi32>) -> tensor<1x1x{width}xi8>
      return %y : tensor<1x1x{width}xi8>
    }}"""


def head(table: np.ndarray) -> str:
    rows, width = table.shape
    kind, result = f"tensor<{rows}x1x1x{width}xi8>", f"tensor<1x1x1x{rows}x"
    return f"""func.func @main(%x: tensor<1x1x1x{width}xi8>) -> {result}i8> {{
      %w = "tosa.const"() <{{values = {written(table[:, None, None])}}}> : () -> {kind}
      %b = "tosa.const"() <{{values = dense<7> : tensor<{rows}xi32>}}> : () -> tensor<{rows}xi32>
      %z = "tosa.const"() <{{values = dense<0> : tensor<1xi8>}}> : () -> tensor<1xi8>
      %0 = "tosa.const"() <{{values = dense<0> : tensor<1xi32>}}> : () -> tensor<1xi32>
      %m = "tosa.const"() <{{values = dense<1073741824> : tensor<1xi32>}}> : () -> tensor<1xi32>
      %s = "tosa.const"() <{{values = dense<40> : tensor<1xi8>}}> : () -> tensor<1xi8>
      %c = tosa.conv2d %x, %w, %b, %z, %z {{acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>,
        stride = array<i64: 1, 1>}} : (tensor<1x1x1x{width}xi8>, {kind}, tensor<{rows}xi32>, tensor<1xi8>, tensor<1xi8>)
        -> {result}i32>
      %y = tosa.rescale %c, %m, %s, %0, %z {{input_unsigned = false, output_unsigned = false, per_channel = false,
        rounding_mode = SINGLE_ROUND, scale32 = true}} : ({result}i32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>,
        tensor<1xi8>) -> {result}i8>
      return %y : {result}i8>
    }}"""
