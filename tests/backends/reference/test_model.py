import numpy as np
import pytest
from tosa_graphs import Graph, random_inputs

from tosaic.backends.reference import evaluate, flatbuffer, serialize
from tosaic.support.errors import BackendError, PassError

CALL = """
func.func @main(%x: tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>) {
  %0 = call @twice(%x) {tosaic.note = "here"} : (tensor<4xi32>) -> tensor<4xi32>
  return %0, %x : tensor<4xi32>, tensor<4xi32>
}
func.func private @twice(%x: tensor<4xi32> {tosaic.scale = 0.5 : f64}) -> tensor<4xi32>
    attributes {tosaic.processor = "cpu"} {
  %0 = tosa.add %x, %x {tosaic.reason = "test"} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
"""
X = np.array([1, -2, 3, 2**30 - 1], np.int32)


def test_calls_are_inlined_and_annotations_ignored():
    outputs = evaluate(CALL, [X])
    assert [output.tolist() for output in outputs] == [(2 * X).tolist(), X.tolist()]
    assert all(output.dtype == np.int32 for output in outputs)


def test_a_flatbuffer_is_executed_as_it_is():
    flatbuffer = serialize(CALL)
    assert flatbuffer[4:8] == b"TOSA"
    assert np.array_equal(evaluate(flatbuffer, [X])[0], 2 * X)
    assert serialize(CALL) == flatbuffer


def test_flatbuffers_are_held_up_to_so_many_bytes(monkeypatch):
    graphs = [Graph() for _ in range(3)]
    modules = [g.module(g.unary("reverse", g.input((number,)), axis=0)) for number, g in enumerate(graphs, 5)]
    monkeypatch.setattr(flatbuffer, "_LATEST", {})
    made = [serialize(module) for module in modules]
    monkeypatch.setattr(flatbuffer, "_LATEST", {})
    monkeypatch.setattr(flatbuffer, "_MOST", len(made[0]) + len(made[1]))
    for module in modules:
        serialize(module)
    assert list(flatbuffer._LATEST.values()) == made[1:]
    monkeypatch.setattr(flatbuffer, "_MOST", len(made[0]) - 1)
    assert serialize(modules[0]) == made[0] and list(flatbuffer._LATEST.values()) == made[1:]


def test_the_module_itself_is_left_alone():
    graph = Graph()
    module = graph.module(graph.input((4,), "i32"))
    before = str(module)
    evaluate(module, [X])
    assert str(module) == before


def test_rescale_rounds_half_up_as_single_round_says():
    graph = Graph()
    x = graph.input((5,), "i32")
    module = graph.module(graph.rescale(x, "i32", 2**30, 31))
    assert evaluate(module, [np.array([1, 2, 3, -1, -3], np.int32)])[0].tolist() == [1, 1, 2, 0, -1]


def test_a_convolution_equals_numpy():
    rng = np.random.default_rng(0)
    graph = Graph()
    weights = rng.integers(-128, 128, (5, 3, 3, 4), np.int8)
    bias = rng.integers(-1000, 1000, 5, np.int32)
    module = graph.module(graph.conv2d(graph.input((1, 6, 7, 4), "i8"), weights, bias))
    (x,) = random_inputs(rng, graph)
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.int64), (3, 3, 4))[:, :, 0]
    expected = np.einsum("hwyxc,oyxc->hwo", windows, weights.astype(np.int64)) + bias
    assert np.array_equal(evaluate(module, [x])[0][0], expected)


def test_a_module_that_is_not_mlir_is_refused():
    with pytest.raises(PassError, match="not valid MLIR"):
        evaluate("func.func @main(", [])


def test_an_op_that_is_not_tosa_is_refused_by_name():
    text = """
func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
  %0 = arith.addi %x, %x : tensor<4xi32>
  return %0 : tensor<4xi32>
}
"""
    with pytest.raises(BackendError, match="cannot serialize this module") as caught:
        evaluate(text, [X])
    assert "arith.addi" in caught.value.why


def test_garbage_in_place_of_a_flatbuffer_does_not_end_the_process():
    with pytest.raises(BackendError, match="did not accept"):
        evaluate(b"\0" * 64, [X])
    assert np.array_equal(evaluate(CALL, [X])[0], 2 * X)


def test_what_does_not_fit_its_type_is_told_from_an_invalid_module():
    with pytest.raises(BackendError, match="a number does not fit its type on these inputs") as caught:
        evaluate(CALL, [np.full(4, 2**30, np.int32)])
    assert "many times what its results hold" in caught.value.hint


@pytest.mark.parametrize("inputs", [[], [X, X], [X[:2]]])
def test_inputs_that_do_not_fit_are_refused(inputs):
    with pytest.raises(BackendError, match="did not accept") as caught:
        evaluate(CALL, inputs)
    assert caught.value.why == "Invalid inputs."


def test_the_model_says_nothing_on_our_streams(capfd):
    with pytest.raises(BackendError):
        evaluate(CALL, [])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind, ends", [("i4", np.array([-7, 7], np.int8)), ("i48", np.array([-(2**47), 2**47 - 1]))])
def test_odd_widths_go_in_and_out(kind, ends):
    text = f"""func.func @main(%x: tensor<2x{kind}>) -> (tensor<2x{kind}>, tensor<2x{kind}>) {{
      %0 = tosa.identity %x : (tensor<2x{kind}>) -> tensor<2x{kind}>
      %1 = "tosa.const"() <{{values = dense<{ends.tolist()}> : tensor<2x{kind}>}}> : () -> tensor<2x{kind}>
      return %0, %1 : tensor<2x{kind}>, tensor<2x{kind}>
    }}"""
    for result in evaluate(text, [ends]):
        np.testing.assert_array_equal(result, ends, strict=True)
