"""Rows that a GATHER reads and a SCATTER writes, under QEMU: each in its place, or none where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from board import M0, M4, M55, Case, run_cases
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.kernel import Overlap
from tosaic.backends.cortex_m.kernels.indexing_sketch import VectorRows
from tosaic.backends.cortex_m.program.indexing import IndexedRows
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.mlir import functions, parse
from tosaic.tuner.space import Schedule

SHAPES = [(9, 8, np.int8), (5, 3, np.int16), (4, 5, np.int32), (7, 70, np.int8), (3, 400, np.int8)]
BENCHES = pytest.mark.parametrize("bench", [M55, M4, M0], ids=["M55", "M4", "M0"])


def scatter(places: int, width: int, kind: str, core: Core = CORE) -> KernelTask:
    values, rows = f"tensor<2x{places}x{width}x{kind}>", f"tensor<2x3x{width}x{kind}>"
    module = parse(f"""func.func @main(%x: {values}, %i: tensor<2x3xi32>, %r: {rows}) -> {values} {{
      %y = tosa.scatter %x, %i, %r : ({values}, tensor<2x3xi32>, {rows}) -> {values}
      return %y : {values}
    }}""")
    return KernelTask.of(functions(module)["main"], core, ("scatter",))


def gather(places: int, width: int, kind: str, core: Core = CORE, table: np.ndarray | None = None) -> KernelTask:
    values, rows = f"tensor<2x{places}x{width}x{kind}>", f"tensor<2x3x{width}x{kind}>"
    given, made = f"%x: {values}, ", ""
    if table is not None:
        given, made = (
            "",
            f"""%x = "tosa.const"() <{{values = dense<"0x{table.tobytes().hex()}"> : {values}}}> : () -> {values}""",
        )
    module = parse(f"""func.func @main({given}%i: tensor<2x3xi32>) -> {rows} {{
      {made}
      %y = tosa.gather %x, %i : ({values}, tensor<2x3xi32>) -> {rows}
      return %y : {rows}
    }}""")
    return KernelTask.of(functions(module)["main"], core, ("gather",))


def tiled(op: str, batch: int, places: int, width: int, count: int, kind: str, core: Core = CORE) -> KernelTask:
    """Rows of indices that all batches share."""
    values, rows = (f"tensor<{batch}x{extent}x{width}x{kind}>" for extent in (places, count))
    i = f"tensor<1x{count}xi32>"
    given, out = (f", %r: {rows}", values) if op == "scatter" else ("", rows)
    taken, types = (", %r", f", {rows}") if op == "scatter" else ("", "")
    module = parse(f"""func.func @main(%i: {i}, %x: {values}{given}) -> {out} {{
      %s = tosa.const_shape {{values = dense<[{batch}, 1]> : tensor<2xindex>}} : () -> !tosa.shape<2>
      %t = tosa.tile %i, %s : ({i}, !tosa.shape<2>) -> tensor<{batch}x{count}xi32>
      %y = tosa.{op} %x, %t{taken} : ({values}, tensor<{batch}x{count}xi32>{types}) -> {out}
      return %y : {out}
    }}""")
    return KernelTask.of(functions(module)["main"], core, (op,))


def drawn(places: int, width: int, kind: type) -> tuple[np.ndarray, np.ndarray]:
    """Values, and rows."""
    rng = np.random.default_rng(0)
    values, rows = (rng.integers(-100, 100, (2, count, width)).astype(kind) for count in (places, 3))
    return values, rows


@BENCHES
def test_rows_are_written(bench, tmp_path):
    cases = []
    for places, width, kind in SHAPES:
        values, rows = drawn(places, width, kind)
        indices = np.array([[places - 1, 0, 2], [places, -1, 1]], np.int32)
        expected = values.copy()
        expected[0, indices[0]] = rows[0]
        expected[1, 1] = rows[1, 2]
        task = scatter(places, width, f"i{8 * values.itemsize}", bench.core)
        cases += [Case(task.generate(s), [values, indices, rows], [expected], str(s)) for s in task.space.schedules()]
    assert [found for found in run_cases(cases, tmp_path, bench=bench) if not found.exact or not found.inside] == []


@BENCHES
@pytest.mark.parametrize("is_table", [False, True], ids=["argument", "constant"])
def test_rows_are_read(is_table, bench, tmp_path):
    cases = []
    for places, width, kind in SHAPES:
        if is_table and kind is np.int8:
            continue  # `lookup` reads these
        values, _ = drawn(places, width, kind)
        indices = np.array([[places - 1, 0, 2], [1, 1, 0]], np.int32)
        expected = np.take_along_axis(values, indices[..., None], axis=1)
        task = gather(places, width, f"i{8 * values.itemsize}", bench.core, values if is_table else None)
        given = [indices] if is_table else [values, indices]
        cases += [Case(task.generate(s), given, [expected], str(s)) for s in task.space.schedules()]
    assert [found for found in run_cases(cases, tmp_path, bench=bench) if not found.exact or not found.inside] == []


@BENCHES
@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_batches_share_indices(op, bench, tmp_path):
    cases, rng = [], np.random.default_rng(1)
    shapes = [(32, 512, 1, np.int8), (5, 9, 3, np.int16), (6, 40, 1, np.int32), (4, 20, 8, np.int8)]
    shapes += [(3, 5, 70, np.int8), (4, 5, 16, np.int8)]
    given = [(shape, [shape[1] - 1]) for shape in shapes] + [(shape, [shape[1] - 1, 1]) for shape in shapes]
    given += [(shape, [-1, 2]) for shape in shapes if op == "scatter"]
    for (batch, places, width, kind), indices in given:
        values = rng.integers(-100, 100, (batch, places, width)).astype(kind)
        rows = rng.integers(-100, 100, (batch, len(indices), width)).astype(kind)
        written, there = values.copy(), [n for n, place in enumerate(indices) if place >= 0]
        written[:, [indices[n] for n in there]] = rows[:, there]
        task = tiled(op, batch, places, width, len(indices), f"i{8 * values.itemsize}", bench.core)
        inputs = [np.array([indices], np.int32), values, *([rows] if op == "scatter" else [])]
        expected = written if op == "scatter" else values[:, indices]
        cases += [Case(task.generate(s), inputs, [expected], str(s)) for s in task.space.schedules()]
    assert [found for found in run_cases(cases, tmp_path, bench=bench) if not found.exact or not found.inside] == []


def test_a_column_is_scattered_by_vectors():
    task = tiled("scatter", 32, 512, 1, 1, "i8")
    source = task.generate(task.default())
    assert source.in_place == (Overlap(1, 0),)
    assert source.text.count("vstrb.16") == 4


@BENCHES
def test_the_result_of_a_scatter_may_lie_over_the_values(bench):
    for places, width, kind in SHAPES:
        task = scatter(places, width, f"i{8 * np.dtype(kind).itemsize}", bench.core)
        source = task.generate(task.default())
        assert source.in_place == (Overlap(0, 0),)
        assert "if (out != values)" in source.text


def test_steps_tree_and_c_of_a_scatter_stay_what_they_are():
    what = VectorRows(IndexedRows(2, 5, 3, 20, "i8"), "", {})
    kernel = of_schedule(what, Schedule.of("vectors", unroll=1, ahead=1), CORE)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_indexing.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")


def test_no_result_of_a_gather_lies_over_the_values():
    task = gather(9, 8, "i8")
    assert task.generate(task.default()).in_place == ()
