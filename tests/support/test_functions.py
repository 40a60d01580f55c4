"""Functions made of copied ops compute what the ops computed."""

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.reference import evaluate
from tosaic.support.attributes import text_of
from tosaic.support.functions import (
    body_of,
    computing_ops,
    extract,
    inputs_of,
    is_exact,
    main_of,
    returned,
    retype,
    standalone,
)
from tosaic.support.mlir import functions, ir, parse, walk

X = np.array([[1, -2, 3, 100]], np.int8)


@pytest.fixture
def main():
    """y = clamp(x), z = rescale(y) + rescale(y): in all, y and z."""
    graph = Graph()
    y = graph.clamp(graph.input((1, 4)), -50, 50)
    wide = graph.requantize(y, "i32", scale=2.0)
    module = graph.module(y, graph.binary("add", wide, wide))
    yield functions(module)["main"]
    assert module.operation.verify()


def test_what_ops_read_is_neither_made_by_them_nor_constant(main):
    clamp, rescale, add = computing_ops(main)
    assert inputs_of([clamp, rescale, add]) == list(body_of(main).arguments)
    assert inputs_of([rescale]) == [clamp.results[0]]
    assert inputs_of([add]) == [rescale.results[0]], "an operand read twice is one input"
    assert inputs_of([clamp, add]) == [clamp.operands[0], rescale.results[0]]


def test_a_main_of_some_ops_has_their_constants(main):
    clamp, rescale, add = computing_ops(main)
    module = main_of([rescale, add], [clamp.results[0]], list(add.results))
    assert module.operation.verify()
    (got,) = evaluate(module, [X])
    assert (got == 4 * X.astype(np.int32)).all()


def test_a_main_of_one_op_that_reads_a_value_twice(main):
    *_, add = computing_ops(main)
    module = main_of([add], inputs_of([add]), list(add.results))
    (got,) = evaluate(module, [X.astype(np.int32)])
    assert (got == 2 * X.astype(np.int32)).all()


@pytest.mark.parametrize(
    ("name", "element", "exact"), [("tanh", "f32", False), ("ceil", "f32", True), ("abs", "i32", True)]
)
def test_what_tosa_leaves_open_is_not_exact(name, element, exact):
    graph = Graph()
    written = str(graph.module(graph.unary(name, graph.input((1, 4), element))))
    assert [is_exact(parse(written)) for _ in range(20)] == [exact] * 20


def test_an_extracted_function_stands_in_the_module_with_its_attributes(main):
    clamp, *_ = computing_ops(main)
    module = parse("module {}")
    with main.context:
        extract(
            module, "f", [clamp], inputs_of([clamp]), list(clamp.results), sym_visibility=ir.StringAttr.get("private")
        )
    assert module.operation.verify()
    assert list(functions(module)) == ["f"]
    assert text_of(functions(module)["f"], "sym_visibility") == "private"


def test_a_standalone_function_is_public_and_bare(main):
    with main.context:
        main.attributes["tosaic.processor"] = ir.StringAttr.get("npu")
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
        computing_ops(main)[0].attributes["tosaic.reason"] = ir.StringAttr.get("none")
        main.attributes["arg_attrs"] = ir.Attribute.parse("[{tosaic.scale = 1.0}]")
    before = str(main)
    module = standalone(main, "kernel")
    assert list(functions(module)) == ["kernel"]
    assert "tosaic" not in str(module) and "private" not in str(module)
    assert str(main) == before
    assert [op.name for op in walk(module)][1:] == [op.name for op in walk(main)]


def test_the_type_follows_the_block(main):
    with main.context, ir.Location.unknown():
        *_, end = body_of(main).operations
        with ir.InsertionPoint(end):
            ir.Operation.create("func.return", operands=returned(main)[:1])
        end.operation.erase()
    retype(main)
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    assert [str(result) for result in kind.results] == ["tensor<1x4xi8>"]
