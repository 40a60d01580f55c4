"""Rows of a constant table, in every order that a convolution may store it in, under QEMU equal the table's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from board import M0, M3, M4, M55, Case, run_cases

from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.cortex_m.sharing import adapted, pack_alike
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.mlir import functions, ir, parse
from tosaic.tuner.space import Schedule

INDICES = np.array([[0, 47, 5, 5, 46, 16, 31, 32, 1]], np.int32)
ROWS = 48


def table(width: int, group: int = 0) -> np.ndarray:
    """Rows of bytes, or of four bits times a factor of each `group`."""
    rng = np.random.default_rng(width)
    if not group:
        return rng.integers(-128, 128, (1, ROWS, width)).astype(np.int8)
    factors = rng.integers(1, 16, (1, ROWS, -(-width // group))).repeat(group, -1)[..., :width]
    return (factors * rng.integers(-8, 8, (1, ROWS, width))).astype(np.int8)


def written(values: np.ndarray) -> str:
    return f'dense<"0x{values.tobytes().hex()}"> : tensor<{"x".join(map(str, values.shape))}xi8>'


def lookup(width: int, group: int = 0) -> ir.Module:
    count = INDICES.shape[1]
    return parse(f"""func.func @main(%i: tensor<1x{count}xi32>) -> tensor<1x{count}x{width}xi8> {{
      %t = "tosa.const"() <{{values = {written(table(width, group))}}}> : () -> tensor<1x{ROWS}x{width}xi8>
      %y = tosa.gather %t, %i : (tensor<1x{ROWS}x{width}xi8>, tensor<1x{count}xi32>) -> tensor<1x{count}x{width}xi8>
      return %y : tensor<1x{count}x{width}xi8>
    }}""")


def head(width: int, group: int = 0) -> ir.Module:
    """The table as the weights of a convolution of one pixel."""
    weights = written(table(width, group).reshape(ROWS, 1, 1, width))
    kind, result = f"tensor<{ROWS}x1x1x{width}xi8>", f"tensor<1x4x1x{ROWS}x"
    return parse(f"""func.func @main(%x: tensor<1x4x1x{width}xi8>) -> {result}i8> {{
      %w = "tosa.const"() <{{values = {weights}}}> : () -> {kind}
      %b = "tosa.const"() <{{values = dense<7> : tensor<{ROWS}xi32>}}> : () -> tensor<{ROWS}xi32>
      %z = "tosa.const"() <{{values = dense<0> : tensor<1xi8>}}> : () -> tensor<1xi8>
      %0 = "tosa.const"() <{{values = dense<0> : tensor<1xi32>}}> : () -> tensor<1xi32>
      %m = "tosa.const"() <{{values = dense<1073741824> : tensor<1xi32>}}> : () -> tensor<1xi32>
      %s = "tosa.const"() <{{values = dense<40> : tensor<1xi8>}}> : () -> tensor<1xi8>
      %c = tosa.conv2d %x, %w, %b, %z, %z {{acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>,
        stride = array<i64: 1, 1>}} : (tensor<1x4x1x{width}xi8>, {kind}, tensor<{ROWS}xi32>, tensor<1xi8>, tensor<1xi8>)
        -> {result}i32>
      %y = tosa.rescale %c, %m, %s, %0, %z {{input_unsigned = false, output_unsigned = false, per_channel = false,
        rounding_mode = SINGLE_ROUND, scale32 = true}} : ({result}i32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>,
        tensor<1xi8>) -> {result}i8>
      return %y : {result}i8>
    }}""")


def task_of(module: ir.Module, family: str, core: Core = CORE) -> KernelTask:
    return KernelTask.of(functions(module)["main"], core, (family,))


def test_every_order_of_a_table_gives_its_rows(tmp_path):
    cases = []
    for width in (32, 13):
        task, expected = task_of(lookup(width), "lookup"), table(width)[:, INDICES[0]]
        cases += [Case(task.generate(s), [INDICES], [expected], f"{width} {s}") for s in task.space.schedules()]
    assert len(cases) > 30
    wrong = [outcome for outcome in run_cases(cases, tmp_path) if outcome.wrong or not outcome.inside]
    assert wrong == []


@pytest.mark.parametrize("bench", [M55, M4], ids=["vectors", "halves"])
def test_rows_of_four_bits_are_unpacked(tmp_path, bench):
    cases = []
    for width, group in ((64, 32), (96, 96), (160, 64)):
        task = task_of(lookup(width, group), "lookup", bench.core)
        assert [variant.name for variant in task.space.variants] == ["lookup.nibbles"]
        expected = table(width, group)[:, INDICES[0]]
        chosen = [s for s in task.space.schedules() if s["behind"] == 1]
        cases += [Case(task.generate(s), [INDICES], [expected], f"{width} {s}") for s in chosen]
    wrong = [outcome for outcome in run_cases(cases, tmp_path, bench=bench) if not outcome.exact]
    assert wrong == []


@pytest.mark.parametrize("bench, width", [(M0, 64), (M3, 64), (M55, 48)], ids=["M0", "M3", "no whole vectors"])
def test_rows_of_four_bits_are_bytes_where_nothing_unpacks_them(bench, width):
    task = task_of(lookup(width, 32), "lookup", bench.core)
    assert [variant.name for variant in task.space.variants] == ["lookup.rows"]


@pytest.mark.parametrize(
    "bench, knobs",
    [
        (M55, {"width": 4, "ahead": 1}),
        (M55, {"width": 3, "ahead": 0}),
        (M55, {"width": 1, "unroll": 1}),
        (M4, {"channels": 4}),
        (M4, {"channels": 1}),
    ],
    ids=str,
)
def test_a_table_of_four_bits_takes_the_order_of_a_convolution(bench, knobs):
    reader = task_of(lookup(64, 32), "lookup", bench.core)
    convolution = task_of(head(64, 32), "conv2d", bench.core)
    (variant,) = convolution.space.variants
    wanted = {name: (value,) for name, value in knobs.items()}
    schedule, source = _first_built(convolution, replace(variant, knobs={**variant.knobs, **wanted}).schedules())
    like = adapted(reader, reader.default(), source, schedule)
    assert like is not None and pack_alike(reader.generate(like), source)


def _first_built(task: KernelTask, schedules: Iterator[Schedule]) -> tuple[Schedule, KernelSource]:
    """The first schedule that builds: some have more numbers alive than registers."""
    for schedule in schedules:
        with suppress(RefusedError):
            return schedule, task.generate(schedule)
    pytest.fail("no schedule builds")


@pytest.mark.parametrize("tile", ["1x1", "2x2", "3x2", "2x3", "1x4"])
def test_a_table_takes_the_order_of_a_convolution_of_the_same_weights(tile):
    reader, convolution = task_of(lookup(32), "lookup"), task_of(head(32), "conv2d")
    variant = convolution.space.variant("conv2d.pixels")
    assert variant is not None
    schedule, source = _first_built(convolution, replace(variant, knobs={**variant.knobs, "tile": (tile,)}).schedules())
    like = adapted(reader, reader.default(), source, schedule)
    assert like is not None and pack_alike(reader.generate(like), source)
