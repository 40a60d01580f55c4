"""Calls in programs: what they mean, which are refused, and what is printed."""

from __future__ import annotations

from dataclasses import replace

import mve_layers
import numpy as np
import pytest
from board import M4, M55, Bench
from family_cases import evaluate_all, task_of
from test_loop import COVERED
from test_transposed import CASES
from tosa_graphs import Graph

from tosaic.backends.cortex_m.kernels import dense
from tosaic.backends.cortex_m.kernels.loop_body import LoopBody, LoopPart
from tosaic.backends.cortex_m.kernels.loop_calls import LoopCalls, unpacked
from tosaic.backends.cortex_m.kernels.masked_sketch import MaskedProduct
from tosaic.backends.cortex_m.kernels.transposed import row_of, rows_of
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.calls import call_of, kernel, with_scratch
from tosaic.backends.cortex_m.program.check import check
from tosaic.backends.cortex_m.program.interpret import Meaning, interpreted, meaning_of_kernel
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.structs import Element, Struct, struct
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, Callee, Invoke, RefusedError, Statement
from tosaic.backends.cortex_m.program.walks import walks
from tosaic.backends.cortex_m.sharing import as_one
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.reference import evaluate
from tosaic.support.mlir import element_type, functions, numpy_dtype, shape_of

N, P = Affine.of("n"), Affine.of("p")


def at(buffer: str, *index: Affine | int) -> Access:
    return Access(buffer, tuple(Affine.of(i) for i in index))


def plus(a: np.ndarray, params: np.ndarray) -> list[np.ndarray]:
    """A kernel that adds its params to a row."""
    return [(a + params).astype(np.int8)]


ADDS = kernel("adds", (Buffer("a", "i8", (16,), "in"), Buffer("b", "i8", (16,), "out")), 16, 32)


def program_of(source: Access, target: Access, params: Access | None = None, own: int = 32) -> Program:
    """Four rows of which each becomes another one by a call."""
    call = call_of(ADDS, (source, target), params or at("w", N, 0), "own")
    body: Statement = Alloc(Buffer("own", "i8", (own,), "scratch"), call)
    body = Alloc(Buffer("turns", "i8", (2, 16), "scratch"), nested(body, n=4))
    arguments = Buffer("x", "i8", (4, 16), "in"), Buffer("y", "i8", (4, 16), "out"), Buffer("w", "i8", (4, 16), "const")
    return Program(arguments, body)


def arrays_of(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {b.name: rng.integers(-60, 60, b.shape).astype(np.int8) for b in program.arguments if b.memory != "out"}


def test_a_call_reads_and_writes_windows():
    program = program_of(at("x", N, 0), at("y", N, 0))
    check(program, M55.core)
    arrays = arrays_of(program)
    found = interpreted(program, arrays, {"adds": plus})
    assert np.array_equal(found["y"], arrays["x"] + arrays["w"])
    built = scheduled(program, (), M55.core)
    assert "adds(x + 16 * n, y + 16 * n, w + 16 * n, own + 0);" in built.text
    assert "extern void adds(const int8_t *, int8_t *, const int8_t *, int8_t *);" in built.text
    assert {(access.of, access.size, access.strides) for walk in walks(program) for access in walk.accesses} == {
        ("x", 16, (16.0,)),
        ("y", 16, (16.0,)),
        ("params", 16, (16.0,)),
        ("own", 32, (0.0,)),
    }


def test_two_buffers_take_turns():
    """Each call reads what the one before wrote: windows that are apart in each iteration."""
    call = call_of(ADDS, (at("turns", P, 0), at("turns", P * -1 + 1, 0)), at("w", N * 2 + P, 0), "own")
    c = Affine.of("c")
    first = nested(Assign(at("turns", 0, c), at("x", 0, c)), c=16)
    last = nested(Assign(at("y", Affine.of("l")), at("turns", 0, Affine.of("l"))), l=16)
    body = seq(first, nested(with_scratch(ADDS, "own", call), n=2, p=2), last)
    arguments = Buffer("x", "i8", (1, 16), "in"), Buffer("y", "i8", (16,), "out"), Buffer("w", "i8", (4, 16), "const")
    program = Program(arguments, Alloc(Buffer("turns", "i8", (2, 16), "scratch"), body))
    check(program, M4.core)
    arrays = {"x": np.ones((1, 16), np.int8), "w": np.arange(64, dtype=np.int8).reshape(4, 16)}
    found = interpreted(program, arrays, {"adds": plus})
    assert np.array_equal(found["y"], (1 + arrays["w"].sum(0)).astype(np.int8))


@pytest.mark.parametrize(
    ("source", "target", "params", "own", "why"),
    [
        (at("y", N, 0), at("y", N, 0), None, 32, "overlap in y"),
        (at("turns", 0, 0), at("turns", 0, 0), None, 32, "overlap in turns"),
        (at("x", N + 1, 0), at("y", N, 0), None, 32, "reaches outside of x"),
        (at("x", N, 0), at("y", N, 8), None, 32, "reaches outside of y"),
        (at("x", N, 0), at("x", N, 0), None, 32, "which lies in in"),
        (at("x", N, 0), at("y", N, 0), at("w", N - 1, 0), 32, "reaches outside of w"),
        (at("x", N, 0), at("y", N, 0), None, 16, "reaches outside of own"),
    ],
)
def test_windows_that_do_not_fit_are_refused(source, target, params, own, why):
    with pytest.raises(RefusedError, match=why):
        check(program_of(source, target, params, own), M55.core)


def test_windows_lie_aligned_and_side_by_side():
    (x, y, w), body = program_of(at("x", N, 0), at("y", N, 0)).arguments, program_of(at("x", N, 0), at("y", N, 0)).body
    with pytest.raises(RefusedError, match="that 16 divides"):
        check(Program((replace(x, shape=(4, 24)), y, w), body), M55.core)
    with pytest.raises(RefusedError, match="as x is"):
        check(Program((replace(x, dtype="i16"), y, w), body), M55.core)
    wide = kernel("wide", (Buffer("a", "i8", (2, 16), "in"), Buffer("b", "i8", (16,), "out")), 0, 0)
    call = call_of(wide, (at("x", 0, 0), at("y", 0, 0)), at("w", 0, 0), "own")
    with pytest.raises(RefusedError, match="does not lie side by side in x"):
        check(Program((replace(x, shape=(4, 32)), y), call), M55.core)


def test_a_function_of_a_library_takes_structs():
    windows = Buffer("a", "i8", (16,), "in"), Buffer("b", "i8", (16,), "out"), Buffer("limits", "i8", (2,), "const")
    how = struct("how_t", low=Element("limits", 0, -1), at=struct("at_t", x=3, room="b"))

    def built_with(*takes: Struct | str) -> str:
        call = Invoke(Callee("scales", windows, 1, "scales.h", takes), (at("x", N, 0), at("y", N, 0), at("w", N, 4)))
        return scheduled(
            Program(program_of(at("x", N, 0), at("y", N, 0)).arguments, nested(call, n=4)), (), M4.core
        ).text

    text = built_with(how, "a", "b")
    given = "&(const how_t){.low = -1 * (w + 16 * n + 4)[0], .at = (const at_t){.x = 3, .room = (void *)(y + 16 * n)}}"
    assert f"scales({given}, x + 16 * n, y + 16 * n);" in text and '#include "scales.h"' in text
    for wrong in (struct("how_t", low=Element("limits", 2)), struct("how_t", low="upper"), "c"):
        with pytest.raises(RefusedError, match="has no window"):
            built_with(wrong, "a", "b")


def test_what_a_call_leaves_in_working_memory_means_nothing():
    call = call_of(ADDS, (at("x", 0, 0), at("y", 0, 0)), at("w", 0, 0), "own")
    c = Affine.of("c")
    kept, read = (
        nested(Assign(at("own", c), at("x", 0, c)), c=16),
        nested(Assign(at("y", 1, Affine.of("d")), at("own", Affine.of("d"))), d=16),
    )
    program = program_of(at("x", 0, 0), at("y", 0, 0))
    body = Alloc(Buffer("own", "i8", (32,), "scratch"), seq(kept, call, read))
    with pytest.raises(ValueError, match="nobody wrote"):
        interpreted(Program(program.arguments, body), arrays_of(program), {"adds": plus})


@pytest.mark.parametrize("bench", [M55, M4], ids=["m55", "m4"])
@pytest.mark.parametrize("name", ["three by stride two", "beyond the edges", "twice as large, cropped", "int16"])
def test_a_transposed_convolution_is_calls_of_programs(name, bench: Bench):
    """The interpreter equals the reference, given the programs of the kernels that are called."""
    task = task_of(CASES[name], ("transpose_conv2d",), bench.core)
    graph = Graph()
    (function,) = functions(graph.module(CASES[name](graph))).values()
    calls, default = rows_of(function), task.default()
    schedule = replace(default, variant=default.variant.removeprefix("transpose_conv2d."))
    rows = [row_of(function, calls, phase) for phase in range(calls.down.stride)]
    tasks = [KernelTask.of(functions(row)["main"], bench.core) for row in rows]
    source = as_one([each.generate(schedule) for each in tasks])
    steps = tasks[0].trace(schedule)
    algorithm = tasks[0].algorithms(steps)[schedule.variant.partition(".")[0]].program
    meaning = meaning_of_kernel(scheduled(algorithm, steps, bench.core).program)
    program = calls.program(source.symbol, len(source.params), source.scratch_bytes)
    program = scheduled(program, parse_steps("\n".join(calls.steps(bench.core))), bench.core).program
    ((x,), expected), kernels = evaluate_all({name: CASES[name]})[name], np.frombuffer(source.params, np.int8)
    arrays = {"x": x.reshape(program.buffers["x"].shape)} | {"kernels": kernels}
    found = interpreted(program, arrays, {source.symbol: meaning})
    assert np.array_equal(found["y"].ravel(), expected.ravel())


@pytest.mark.parametrize("bench", [M55, M4], ids=["m55", "m4"])
@pytest.mark.parametrize("name", ["rows that are not aligned", "memories", "constant before the first iteration"])
def test_a_loop_is_calls_of_the_kernels_of_its_body(name, bench: Bench):
    """The interpreter equals the reference, given what the kernels compute, also where constants are unpacked."""
    graph, rng = Graph(), np.random.default_rng(1)
    results = COVERED[name](graph)
    inputs = [
        rng.integers(-128, 128, shape_of(value)).astype(np.int8 if "i8" in str(value.type) else np.int32)
        for value in graph.inputs
    ]
    layer = mve_layers.layer_of(graph, results, *inputs)
    body = LoopBody.of(layer.function)
    assert body is not None
    calls = LoopCalls(body, bench.core)

    def meaning_of(part: LoopPart) -> Meaning:
        def meaning(*given: np.ndarray) -> list[np.ndarray]:
            types = [numpy_dtype(element_type(value)) for value in part.inputs]
            arrays = [
                array.view(dtype).reshape(shape_of(value))
                for array, dtype, value in zip(given, types, part.inputs, strict=False)
            ]
            return [np.frombuffer(array.tobytes(), np.int8) for array in evaluate(part.meaning, arrays)]

        return meaning

    meanings = {source.symbol: meaning_of(part) for part, source in zip(body.parts(), calls.sources, strict=True)}
    known = np.frombuffer(calls.known, np.int8)
    given = {f"in{i}": np.frombuffer(array.tobytes(), np.int8) for i, array in enumerate(inputs)}
    unpacking = dense.unpacking(calls.known, bench.core)
    cached = unpacked(calls.program(), unpacking)
    meanings[unpacking.symbol] = lambda stored: [known]
    stored = np.frombuffer(unpacking.params, np.int8)
    for program in (calls.program(), cached):
        check(program, bench.core)
        found = interpreted(program, {**given, "known": known, "stored": stored}, meanings)
        assert [found[f"out{i}"].tobytes() for i in range(len(results))] == [
            array.tobytes() for array in layer.expected
        ]


@pytest.mark.parametrize("bench", [M55, M4], ids=["m55", "m4"])
@pytest.mark.parametrize("shape", [(2, 2, 4, 64), (1, 3, 4, 40), (1, 8, 4, 17)])
def test_a_masked_product_is_calls_for_blocks_that_are_seen(shape, bench: Bench):
    """The interpreter equals products by NumPy: before and behind the steps; blocks that nobody sees take no call."""
    batch, rows, depth, columns = shape
    block = 32 if columns % 32 == 0 else columns
    rng, called = np.random.default_rng(3), list[int]()

    def product(keys: np.ndarray, queries: np.ndarray, params: np.ndarray) -> list[np.ndarray]:
        called.append(int(params[0]))
        return [(queries.astype(int) @ keys.T.astype(int) >> 4).astype(np.int8)]

    x, a = (rng.integers(-20, 20, (batch, count, depth)).astype(np.int8) for count in (columns, rows))
    for masks, seen in ((1, columns // 3), (rows, columns // 3), (1, 0)):
        mask = np.broadcast_to(np.arange(columns) < seen, (masks, columns)).astype(np.int8)
        calls = MaskedProduct(batch, columns // block, 1, rows, depth, block, masks, -128, 4)
        program = calls.program("product", 16, 32, bench.core)
        steps = parse_steps("\n".join(calls.steps(bench.core)))
        full = (a.astype(int) @ x.transpose(0, 2, 1).astype(int) >> 4).astype(np.int8)
        wanted = np.where(np.resize(mask, (batch, rows, columns)), full, -128)
        for each in (program, scheduled(program, steps, bench.core).program):
            called.clear()
            given = {"x": x, "a": a, "mask": mask, "known": np.full(16, 7, np.int8)}
            found = interpreted(each, given, {"product": product})["out"]
            assert np.array_equal(found.reshape(wanted.shape), wanted)
            assert called == [7] * batch * -(-seen // block)


def test_a_greatest_number_in_a_block_begins_where_it_is_said_to():
    text = """
a: i8[16] in in
out: i32[1] in out
for j < 1:
  S: i32[] in scratch
  S = 0
  for m < 16:
    S = max(low(S), a[m])
  out[0] = S
"""
    steps = parse_steps("place(S, r)\nsplit(m, ml, 16)\nstage(a, m, v, q)\nselect(j, mve)\nblock(j)")
    assert '"mov.w r0, #0\\n"' in scheduled(parse_program(text), steps, M55.core).text
