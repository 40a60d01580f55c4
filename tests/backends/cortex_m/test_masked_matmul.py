"""Products with masked columns, under QEMU: equal to the reference model, and cheaper the more blocks are masked."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from board import M4, M55, Bench, Case, run_cases

from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.reference import evaluate
from tosaic.support.mlir import functions, ir, parse

FLAGS = (
    "{input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, "
    "scale32 = true}"
)


@cache
def module_of(batch: int, rows: int, depth: int, columns: int, masks: int) -> ir.Module:
    """Queries (batch, rows, depth) with keys (batch, columns, depth), and -128 where a mask does not hold that has
    `masks` rows."""
    keys, turned = f"tensor<{batch}x{columns}x{depth}xi8>", f"tensor<{batch}x{depth}x{columns}xi8>"
    queries, sums = f"tensor<{batch}x{rows}x{depth}xi8>", f"tensor<{batch}x{rows}x{columns}xi32>"
    scores, mask = sums.replace("i32", "i8"), f"tensor<1x{masks}x{columns}xi1>"
    byte, word = "tensor<1xi8>", "tensor<1xi32>"
    return parse(f"""func.func @main(%k: {keys}, %q: {queries}, %m: {mask}) -> {scores} {{
      %t = tosa.transpose %k {{perms = array<i32: 0, 2, 1>}} : ({keys}) -> {turned}
      %qz = "tosa.const"() <{{values = dense<-3> : {byte}}}> : () -> {byte}
      %kz = "tosa.const"() <{{values = dense<7> : {byte}}}> : () -> {byte}
      %s = tosa.matmul %q, %t, %qz, %kz : ({queries}, {turned}, {byte}, {byte}) -> {sums}
      %f = "tosa.const"() <{{values = dense<15041568> : {word}}}> : () -> {word}
      %h = "tosa.const"() <{{values = dense<33> : {byte}}}> : () -> {byte}
      %z = "tosa.const"() <{{values = dense<0> : {word}}}> : () -> {word}
      %o = "tosa.const"() <{{values = dense<5> : {byte}}}> : () -> {byte}
      %r = tosa.rescale %s, %f, %h, %z, %o {FLAGS} : ({sums}, {word}, {byte}, {word}, {byte}) -> {scores}
      %l = "tosa.const"() <{{values = dense<-128> : tensor<1x1x1xi8>}}> : () -> tensor<1x1x1xi8>
      %y = tosa.select %m, %r, %l : ({mask}, {scores}, tensor<1x1x1xi8>) -> {scores}
      return %y : {scores}
    }}""")


def case_of(shape: tuple[int, int, int, int], kept: np.ndarray, bench: Bench = M55) -> Case:
    batch, rows, depth, columns = shape
    rng, module = np.random.default_rng(0), module_of(*shape, kept.size // columns)
    sizes = (batch, columns, depth), (batch, rows, depth)
    inputs = [*(rng.integers(-128, 128, size).astype(np.int8) for size in sizes), kept.reshape(1, -1, columns)]
    task = KernelTask.of(functions(module)["main"], bench.core, ("masked_matmul",))
    assert task.default().variant.startswith("masked_matmul.")
    return Case(task.generate(task.default()), inputs, evaluate(module, inputs), f"{shape}")


@pytest.mark.parametrize("bench", [M55, M4], ids=["m55", "m4"])
def test_masked_columns_have_one_number(bench, tmp_path):
    """Blocks of which all, some or no columns are masked, in all rows alike or not; one block, and several; matrices
    that lie anyhow."""
    rng, cases = np.random.default_rng(1), []
    for shape in [(2, 2, 8, 512), (2, 3, 16, 40), (1, 1, 20, 96), (1, 2, 5, 17), (3, 1, 5, 64), (3, 1, 8, 64)]:
        columns = np.arange(shape[-1])
        masks = columns < shape[-1] // 3, rng.random(shape[-1]) < 0.5, columns < 0, columns >= shape[-1] // 2
        masks += columns <= shape[-1] // 3 + np.arange(shape[1])[:, None], rng.random((shape[1], shape[-1])) < 0.02
        cases += [case_of(shape, kept, bench) for kept in masks]
    for outcome in run_cases(cases, tmp_path, bench=bench):
        assert outcome.exact and outcome.inside, outcome


def test_blocks_that_are_masked_are_not_computed(tmp_path):
    cases = [case_of((2, 2, 8, 512), np.arange(512) < count) for count in (512, 256, 1, 0)]
    whole, half, one, none = (outcome.instructions for outcome in run_cases(cases, tmp_path))
    assert half < 0.6 * whole and one < 0.4 * whole and none < 0.2 * whole
