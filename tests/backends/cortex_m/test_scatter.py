"""Rows that a SCATTER writes, under QEMU: each in its place, and none where there is no such place."""

from __future__ import annotations

import numpy as np
import pytest
from board import Case, run_cases

from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.kernel import Overlap
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.support.mlir import functions, parse


def task_of(places: int, width: int, kind: str) -> KernelTask:
    values, rows = f"tensor<2x{places}x{width}x{kind}>", f"tensor<2x3x{width}x{kind}>"
    module = parse(f"""func.func @main(%x: {values}, %i: tensor<2x3xi32>, %r: {rows}) -> {values} {{
      %y = tosa.scatter %x, %i, %r : ({values}, tensor<2x3xi32>, {rows}) -> {values}
      return %y : {values}
    }}""")
    return KernelTask.of(functions(module)["main"], CORE, ("scatter",))


@pytest.mark.parametrize("places, width, kind", [(9, 8, np.int8), (5, 3, np.int16), (4, 5, np.int32)])
def test_rows_are_written(places, width, kind, tmp_path):
    rng = np.random.default_rng(0)
    values, rows = (rng.integers(-100, 100, (2, count, width)).astype(kind) for count in (places, 3))
    indices = np.array([[places - 1, 0, 2], [places, -1, 1]], np.int32)
    expected = values.copy()
    expected[0, indices[0]] = rows[0]
    expected[1, 1] = rows[1, 2]
    task = task_of(places, width, f"i{8 * np.dtype(kind).itemsize}")
    source = task.generate(task.default())
    (outcome,) = run_cases([Case(source, [values, indices, rows], [expected], "scatter")], tmp_path)
    assert outcome.exact and outcome.inside, outcome


def test_the_result_may_lie_over_the_values():
    task = task_of(9, 8, "i8")
    assert task.generate(task.default()).in_place == (Overlap(0, 0),)
    assert task.default().variant == "scatter.rows"
