"""Loops that count: what they compute unrolled, and what is no such loop."""

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.reference import evaluate
from tosaic.support.errors import PassError
from tosaic.support.functions import computing_ops, extract, inputs_of
from tosaic.support.loops import LOOP, captured, counted_loop, iterations_of, over_rows, unroll
from tosaic.support.mlir import constant, copy_of, functions, parse, walk
from tosaic.support.tosa_builder import emit

X = np.array([[[1, 2], [3, 4], [5, 6]]], np.int32)


def totals():
    """Each row is the sum of x's rows up to its own, and of what is given."""
    graph = Graph()
    x, before = graph.input((1, 3, 2), "i32"), graph.input((1, 1, 1, 2), "i32")

    def step(row, carried):
        total = emit("add", [row, carried[0]], (1, 1, 1, 2), "i32")
        return total, [total]

    with graph.building():
        rows, (last,) = over_rows(x, 2, "i32", [before], step)
    return graph.module(rows, last)


def test_a_loop_over_rows_carries_what_an_iteration_gives():
    rows, last = evaluate(totals(), [X, np.array([[[[10, 20]]]], np.int32)])
    np.testing.assert_array_equal(rows, [[[11, 22], [14, 26], [19, 32]]])
    np.testing.assert_array_equal(last, [[[[19, 32]]]])


def test_one_row_needs_no_loop():
    graph = Graph()
    x = graph.input((1, 1, 2), "i32")
    with graph.building():
        rows, _ = over_rows(x, 2, "i32", [], lambda row, carried: (row, carried))
    assert not any(op.name == LOOP for op in walk(graph.module(rows)))


def test_unrolled_there_is_no_loop_and_each_constant_once():
    module = totals()
    constants = sum(op.name == "tosa.const" for op in walk(module))
    unroll(module)
    names = [op.name for op in walk(module)]
    assert LOOP not in names and names.count("tosa.scatter") == 3
    assert module.operation.verify()
    assert names.count("tosa.const") < constants + 5  # the numbers of the iterations


def test_what_a_loop_reads_from_outside_goes_with_it():
    graph = Graph()
    x, factor = graph.input((1, 1), "i32"), graph.input((1, 1), "i32")
    with graph.building():
        three = constant(np.full((1, 1), 3, np.int32))

        def iteration(number, carried):
            scaled = emit("mul", [carried[0], factor, constant(np.zeros(1, np.int8))], (1, 1), "i32")
            return [emit("add", [scaled, three], (1, 1), "i32")]

        (result,) = counted_loop(4, [x], iteration)
    module = graph.module(result)
    main = functions(module)["main"]
    (loop,) = computing_ops(main)
    assert captured(loop) == [factor, three]
    assert inputs_of([loop]) == [x, factor]
    with module.context, main.location:
        extract(module, "part", [loop], [x, factor], [loop.results[1]])
    part = parse(str(functions(module)["part"]).replace("@part", "@main"))
    given = [np.array([[number]], np.int32) for number in (5, 2)]
    np.testing.assert_array_equal(evaluate(part, given), evaluate(copy_of(parse(str(main))), given))
    assert evaluate(part, given)[0].item() == ((((5 * 2 + 3) * 2 + 3) * 2 + 3) * 2 + 3)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("dense<1> : tensor<1x1xi32>", "dense<2> : tensor<1x1xi32>"),
        ("dense<0> : tensor<1x1xi32>", "dense<1> : tensor<1x1xi32>"),
        ("tosa.greater %", "tosa.greater_equal %"),
    ],
    ids=["by twos", "from one", "as long as it is not more"],
)
def test_a_loop_that_counts_otherwise_is_refused(part, other):
    text = str(totals())
    assert part in text
    module = parse(text.replace(part, other))
    (loop,) = [op for op in walk(module) if op.name == LOOP]
    with pytest.raises(PassError, match="does not count its iterations from 0 to a constant") as error:
        iterations_of(loop)
    assert "known at compile time" in str(error.value)
