"""Loops as one kernel: every schedule, on the simulated board, equals the loop unrolled on the reference model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import mve_layers
import numpy as np
import pytest
from board import M4, M55, Case, run_cases
from golden_files import assert_golden
from slow_memory import SLOW_MEMORY
from tosa_graphs import Graph

from tosaic.backends.cortex_m.kernel import ANYWHERE, Site
from tosaic.backends.cortex_m.kernels.dense import dense
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.support.loops import counted_loop, over_rows
from tosaic.support.mlir import constant, constant_shape, functions, ir, shape_of
from tosaic.support.tosa_builder import emit, rescale
from tosaic.tuner.space import Schedule

Build = Callable[[Graph], Sequence[ir.Value]]
_WEIGHTS = np.random.default_rng(5).integers(-127, 128, (64, 1, 1, 64)).astype(np.int8)


def _dense(x: ir.Value, outputs: int, kind: str = "i8") -> ir.Value:
    """A fully connected layer of [N, 1, 1, I]."""
    weights = _WEIGHTS[:outputs, :, :, : shape_of(x)[3]].copy()
    operands = [
        x,
        constant(weights),
        constant(np.arange(outputs, dtype=np.int32)),
        *[constant(np.zeros(1, np.int8))] * 2,
    ]
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": ir.Type.parse("i32")}
    sums = emit("conv2d", operands, (shape_of(x)[0], 1, 1, outputs), "i32", **window)
    return rescale(sums, kind, [1 << 30], [42 if kind == "i8" else 32])


def _sum(a: ir.Value, b: ir.Value) -> ir.Value:
    wide = emit("add", [rescale(value, "i32", [1 << 30], [30]) for value in (a, b)], shape_of(a), "i32")
    return rescale(wide, "i8", [1 << 30], [31])


def _recurrence(iterations: int, inputs: int, outputs: int, first: str = "given", results: str = "both") -> Build:
    """h = (W x + h) / 2, of which each is a row of the result; h before the first iteration is an input or a
    constant."""

    def build(graph: Graph) -> Sequence[ir.Value]:
        x, dims = graph.input((1, iterations, inputs)), (1, 1, 1, outputs)
        before = graph.input(dims) if first == "given" else graph.const(np.arange(outputs).reshape(dims), "i8")

        def step(row: ir.Value, carried: Sequence[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            state = _sum(_dense(row, outputs), carried[0])
            return state, [state]

        with graph.building():
            rows, (last,) = over_rows(x, outputs, "i8", [before], step)
        return {"both": (rows, last), "rows": (rows,), "last": (last,)}[results]

    return build


def _memory(graph: Graph) -> Sequence[ir.Value]:
    """Two int32 are carried, one by way of the other; they read pieces of a sum, one of which is not aligned."""
    x, memories = graph.input((1, 6, 16)), [graph.input((1, 1, 1, 20), "i32") for _ in range(2)]
    dims = (1, 1, 1, 20)

    def step(row: ir.Value, carried: Sequence[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        sums = _dense(row, 60, "i32")
        some = [
            emit("slice", [sums, constant_shape((0, 0, 0, at)), constant_shape(dims)], dims, "i32") for at in (0, 8, 33)
        ]
        one = emit("maximum", [emit("minimum", [carried[0], some[0]], dims, "i32"), some[1]], dims, "i32")
        other = emit("minimum", [emit("maximum", [carried[1], one], dims, "i32"), some[2]], dims, "i32")
        return rescale(other, "i8", [1 << 30], [40]), [one, other]

    with graph.building():
        rows, last = over_rows(x, 20, "i8", memories, step)
    return rows, *last


def _kept(graph: Graph) -> Sequence[ir.Value]:
    """A carried value that stays as it is."""
    x, kept = graph.input((1, 5, 32)), graph.input((1, 1, 1, 16))

    def step(row: ir.Value, carried: Sequence[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        return _sum(_dense(row, 16), carried[0]), carried

    with graph.building():
        rows, last = over_rows(x, 16, "i8", [kept], step)
    return rows, *last


def _samples(graph: Graph) -> Sequence[ir.Value]:
    """The rows of two samples, which no iteration finds by its number alone."""
    x, before = graph.input((2, 5, 16)), graph.input((2, 1, 1, 16))

    def step(row: ir.Value, carried: Sequence[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        state = _sum(_dense(row, 16), carried[0])
        return state, [state]

    with graph.building():
        rows, last = over_rows(x, 16, "i8", [before], step)
    return rows, *last


def _exchange(graph: Graph) -> Sequence[ir.Value]:
    """Two carried values change places, so that neither is a kernel's result."""
    pair = [graph.input((1, 4)), graph.input((1, 4))]
    with graph.building():
        return counted_loop(3, pair, lambda number, carried: [carried[1], carried[0]])


def _powers(graph: Graph) -> Sequence[ir.Value]:
    """No rows: x doubles iteration by iteration."""
    x = graph.input((1, 1, 1, 9))
    with graph.building():
        return counted_loop(4, [x], lambda number, carried: [_sum(carried[0], carried[0])])


COVERED: dict[str, Build] = {
    "aligned rows": _recurrence(7, 16, 32),
    "rows that are not aligned": _recurrence(7, 10, 20),
    "constant before the first iteration": _recurrence(5, 32, 16, "constant"),
    "rows alone": _recurrence(3, 8, 48, results="rows"),
    "the last state alone": _recurrence(3, 8, 48, results="last"),
    "the last of unaligned states alone": _recurrence(4, 9, 7, "constant", results="last"),
    "memories": _memory,
    "a carried value that stays": _kept,
    "no rows": _powers,
}
LEFT: dict[str, Build] = {"two samples": _samples, "an exchange": _exchange}


def _cases(builds: dict[str, Build], core=M55.core) -> list[tuple[str, Case]]:
    found, rng = [], np.random.default_rng(1)
    for name, build in builds.items():
        graph = Graph()
        results = build(graph)
        inputs = [
            rng.integers(-128, 128, shape_of(value)).astype(np.int8 if "i8" in str(value.type) else np.int32)
            for value in graph.inputs
        ]
        layer = mve_layers.layer_of(graph, results, *inputs)
        task = KernelTask.of(layer.function, core)
        for schedule in task.space.schedules():
            found.append((name, Case(task.generate(schedule), layer.inputs, layer.expected, f"{name}: {schedule}")))
    return found


@pytest.mark.parametrize("bench", [M55, M4], ids=["cortex-m55", "cortex-m4"])
def test_every_schedule_is_exact(bench, tmp_path):
    cases = _cases({**COVERED, **LEFT}, bench.core)
    assert {name for name, case in cases if "loop.calls" in case.name} == set(COVERED)
    assert {name for name, case in cases if "linalg.loops" in case.name} == {*COVERED, *LEFT}
    for outcome in run_cases([case for _, case in cases], tmp_path, bench=bench):
        assert outcome.exact, outcome


def test_it_takes_a_third_of_the_generic_kernel(tmp_path):
    cases = [case for _, case in _cases({"aligned rows": COVERED["aligned rows"]})]
    found = {outcome.case.name: outcome.instructions for outcome in run_cases(cases, tmp_path)}
    generic = found.pop("aligned rows: linalg.loops()")
    assert len(found) == 2 and all(3 * instructions < generic for instructions in found.values())


def _task(name: str, site: Site = ANYWHERE) -> KernelTask:
    graph = Graph()
    (function,) = functions(graph.module(*COVERED[name](graph))).values()
    return replace(KernelTask.of(function, M55.core), site=site)


def test_params_that_a_slow_memory_holds_are_copied_where_there_is_room():
    """The guess; the parts are the same, and so are the params when they are unpacked."""
    assert M55.core.pipeline is not None
    quick = replace(SLOW_MEMORY, latency=0, bytes_per_cycle=M55.core.pipeline.bytes_per_cycle)
    here, fast = _task("rows alone", Site(SLOW_MEMORY)), _task("rows alone", Site(quick))
    copied, read = (task.generate(task.default()) for task in (here, fast))
    assert copied.params == dense(read.params)[0] and len(copied.params) < len(read.params)
    assert copied.scratch_bytes >= read.scratch_bytes + len(read.params)
    limited = _task("rows alone", Site(SLOW_MEMORY, copied.scratch_bytes - 1))
    assert limited.generate(limited.default()) == read
    least = _task("rows alone", Site(SLOW_MEMORY, read.scratch_bytes - 1))
    assert least.default().variant == "linalg.loops"


def test_golden_c():
    source = _task("rows that are not aligned").generate(Schedule.of("loop.calls", params="memory"))
    assert_golden("loop.c", source, f"void {source.symbol}")
