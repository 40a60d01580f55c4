"""Graphs of ONNX: what is known is computed, what is quantized keeps its scales, what has no meaning is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tosaic.backends.reference import evaluate, prepare
from tosaic.compiler.accuracy import compute
from tosaic.frontend import capture, import_program, quantize, run_float
from tosaic.passes import run_phases
from tosaic.support.errors import ModelError
from tosaic.support.mlir import walk

onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
helper, FLOAT, INT64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
node = helper.make_node


@pytest.fixture
def saved(tmp_path):
    """A graph from `x` to `y`, saved: nodes, the shapes of both, arrays by name, and the opset."""

    def save(nodes, given, result, arrays=None, opset=21, kind=FLOAT, domains=()):
        x, y = (helper.make_tensor_value_info(n, k, s) for n, k, s in (("x", kind, given), ("y", FLOAT, result)))
        constants = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (arrays or {}).items()]
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        onnx.save(helper.make_model(helper.make_graph(nodes, "net", [x], [y], constants), opset_imports=opsets),
                  tmp_path / "net.onnx")  # fmt: skip
        return str(tmp_path / "net.onnx")

    return save


def agrees(path):
    """What was captured, when PyTorch computes what ONNX's reference does."""
    captured = capture(path)
    (want,) = ReferenceEvaluator(path).run(None, {"x": captured.inputs[0].numpy()})
    np.testing.assert_allclose(run_float(captured, captured.inputs)[0], want, rtol=1e-5, atol=1e-6)
    return captured


def test_a_graph_has_its_names(saved):
    nodes = [node("Relu", ["x"], ["r"]), node("GlobalAveragePool", ["r"], ["y"])]
    captured = capture(saved(nodes, ["n", 3, 4, 4], ["n", 3, 1, 1]), shapes={"x": (2, 3, 4, 4)})
    assert (captured.input_names, captured.output_names) == (["x"], ["y"])
    (want,) = run_float(captured, captured.inputs)
    np.testing.assert_allclose(captured.inputs[0].relu().mean((2, 3), keepdim=True), want, rtol=1e-5)
    (got,) = evaluate(import_program(captured.program), [captured.inputs[0].numpy()])
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(("name", "word"), [("input.1", "input_1"), ("0", "value_0"), ("class", "value_class")])
def test_names_of_inputs_are_words(tmp_path, name, word):
    x, y = (helper.make_tensor_value_info(one, FLOAT, [1, 3]) for one in (name, "y"))
    onnx.save(helper.make_model(helper.make_graph([node("Relu", [name], ["y"])], "net", [x], [y])), tmp_path / "n.onnx")
    assert capture(str(tmp_path / "n.onnx")).input_names == [word]


def test_a_pool_may_be_padded_on_one_side(saved):
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")
    program = quantize(agrees(saved([pool], [1, 2, 6, 5], [1, 2, 3, 3])))
    run_phases(import_program(program))


def test_shapes_are_computed_when_the_graph_is_read(saved):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["batch"]),
        node("Concat", ["batch", "rest"], ["flat"], axis=0),
        node("Reshape", ["x", "flat"], ["y"]),
    ]
    arrays = {"first": np.array([0]), "rest": np.array([-1])}
    captured = agrees(saved(nodes, [2, 3, 4], [2, 12], arrays))
    assert {op.name for op in walk(import_program(captured.program)) if op.name.startswith("tosa.")} <= {
        "tosa.reshape",
        "tosa.const_shape",
    }


def test_a_softmax_is_that_of_its_opset(saved):
    """Before opset 13 it is one of rows, which all axes from its own on make up."""
    nodes = [node("Softmax", ["x"], ["of_x"], axis=1), node("Softmax", ["w"], ["of_w"], axis=1)]
    arrays = {"w": np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 9}
    for opset, axes in ((11, (1, 2)), (13, (1,))):
        captured = capture(saved([*nodes, node("Mul", ["of_x", "of_w"], ["y"])], [2, 3, 4], [2, 3, 4], arrays, opset))
        powers = [np.exp(one) for one in (captured.inputs[0].numpy(), arrays["w"])]
        one, other = (power / power.sum(axes, keepdims=True) for power in powers)
        np.testing.assert_allclose(run_float(captured, captured.inputs)[0], one * other, rtol=1e-5)


@pytest.mark.parametrize(("opset", "axes"), [(11, "attribute"), (18, "operand")])
def test_axes_are_an_attribute_or_an_operand(saved, opset, axes):
    one = node("ReduceMean", ["x"], ["y"], axes=[1]) if axes == "attribute" else node("ReduceMean", ["x", "a"], ["y"])
    agrees(saved([one], [2, 3, 4], [2, 1, 4], {"a": np.array([1])} if axes == "operand" else {}, opset))


@pytest.mark.parametrize("known", [True, False])
def test_a_branch_is_chosen_now_or_by_an_input(saved, known):
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["x"], [name])], name, [], [helper.make_tensor_value_info(name, FLOAT, [3])]
        )
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    of_input = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["c"])]
    arrays = {"c": np.array(True)} if known else {"zero": np.float32(0)}
    captured = agrees(saved([*([] if known else of_input), node("If", ["c"], ["y"], **branches)], [3], [3], arrays))
    assert any("where" in str(one.target) for one in captured.program.graph.nodes) != known


def test_a_loop_is_unrolled(saved):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["v", "x"], ["sum"]), node("Identity", ["c"], ["on"]), node("Mul", ["sum", "sum"], ["square"])],
        "body",
        [value("i", INT64, []), value("c", onnx.TensorProto.BOOL, []), value("v", FLOAT, [2])],
        [value("on", onnx.TensorProto.BOOL, []), value("sum", FLOAT, [2]), value("square", FLOAT, [2])],
    )
    loop = node("Loop", ["count", "go", "x"], ["last", "rows"], body=body)
    agrees(
        saved([loop, node("Add", ["last", "rows"], ["y"])], [2], [3, 2], {"count": np.array(3), "go": np.array(True)})
    )


def test_an_input_may_be_one_number(saved):
    captured = agrees(saved([node("Mul", ["x", "w"], ["y"])], [], [3], {"w": np.arange(3, dtype=np.float32)}))
    assert captured.inputs[0].shape == (1,)


def quantized_net(saved, kind, zeros, transposed=1):
    """A convolution and a product, whose tensors and weights come with scales."""
    rng, nodes, arrays = np.random.default_rng(0), list[Any](), dict[str, Any]()

    def round_trip(name, scale, zero):
        arrays.update({f"{name}_s": np.float32(scale), f"{name}_z": kind(zero)})
        nodes.append(node("QuantizeLinear", [name, f"{name}_s", f"{name}_z"], [f"{name}_q"]))
        nodes.append(node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_r"]))

    def weight(name, shape, scale, stored, axis=0):
        arrays.update({f"{name}_i": rng.integers(-100, 100, shape).astype(stored), f"{name}_s": np.float32(scale)})
        nodes.append(node("DequantizeLinear", [f"{name}_i", f"{name}_s"], [name], axis=axis))

    scales = np.linspace(0.002, 0.01, 4)
    round_trip("x", 0.02, zeros[0])
    weight("w", (4, 3, 3, 3), scales, np.int8)
    weight("b", (4,), scales * 0.02, np.int32)
    nodes += [node("Conv", ["x_r", "w", "b"], ["c"], pads=[0, 0, 1, 1], strides=[2, 2]), node("Relu", ["c"], ["relu"])]
    round_trip("relu", 0.03, zeros[1])
    nodes.append(node("Flatten", ["relu_r"], ["flat"]))
    weight("v", (5, 64) if transposed else (64, 5), np.linspace(0.005, 0.01, 5), np.int8, axis=1 - transposed)
    nodes.append(node("Gemm", ["flat", "v"], ["gemm"], transB=transposed))
    round_trip("gemm", 0.3, zeros[2])
    nodes.append(node("Identity", ["gemm_r"], ["y"]))
    return saved(nodes, [1, 3, 8, 8], [1, 5], arrays)


@pytest.mark.parametrize(
    ("kind", "zeros", "transposed"),
    [
        (np.uint8, (128, 0, 120), 1),
        (np.uint8, (128, 0, 120), 0),
        (np.int8, (-3, -128, 7), 1),
        (np.int8, (-3, -128, 7), 0),
        (np.int16, (0, 0, 0), 1),
    ],
)
def test_a_quantized_graph_keeps_its_scales(saved, kind, zeros, transposed):
    path = quantized_net(saved, kind, zeros, transposed)
    captured = agrees(path)
    program = quantize(captured)
    assert program is captured.program
    module = import_program(program)
    assert "quant.uniform<i8:f32:0, {0.0020000000949949026,0.0046666665002703667" in str(module)
    run_phases(module)
    x = captured.inputs[0].numpy()
    (got,) = compute(module, prepare(module), [x]).outputs
    (want,) = ReferenceEvaluator(path).run(None, {"x": x})
    stored = np.rint(want / np.float32(0.3)) + zeros[2] - (128 if kind is np.uint8 else 0)
    assert not any("f32" in str(result.type) for op in walk(module) for result in op.results)
    assert np.abs(got - stored).max() <= 1  # where a sum lies halfway


@pytest.mark.parametrize("kind, zero", [(np.uint8, 120), (np.int8, -5)])
def test_a_convolution_of_stored_integers_keeps_its_scales(saved, kind, zero):
    rng = np.random.default_rng(0)
    arrays = {
        "xs": np.float32(0.02), "xz": kind(zero), "ys": np.float32(0.1), "yz": kind(zero),
        "w": rng.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8), "ws": np.linspace(0.002, 0.01, 4, dtype=np.float32),
        "wz": np.zeros(4, np.int8), "b": rng.integers(-500, 500, 4).astype(np.int32),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    path = saved(nodes, [1, 3, 8, 8], [1, 4, 8, 8], arrays)
    captured = capture(path)
    x = captured.inputs[0].numpy()
    (want,) = ReferenceEvaluator(path).run(None, {"x": x})
    module = import_program(quantize(captured))
    run_phases(module)
    assert not any("f32" in str(result.type) for op in walk(module) for result in op.results)
    (got,) = compute(module, prepare(module), [x]).outputs
    stored = np.rint(want / np.float32(0.1)) + zero - (128 if kind is np.uint8 else 0)
    assert np.abs(got - stored).max() <= 1  # where a sum lies halfway


@pytest.mark.parametrize("op, shape", [("ConvInteger", (4, 3, 3, 3)), ("MatMulInteger", (8, 5))])
def test_products_of_integers_are_those_of_onnx(saved, op, shape):
    rng = np.random.default_rng(0)
    arrays = {
        "xs": np.float32(0.02), "xz": np.uint8(120),
        "w": rng.integers(-100, 100, shape).astype(np.int8), "wz": np.int8(3),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node(op, ["q", "w", "xz", "wz"], ["i"]),
        node("Cast", ["i"], ["y"], to=FLOAT),
    ]
    result = [1, 4, 6, 6] if op == "ConvInteger" else [1, 3, 8, 5]
    agrees(saved(nodes, [1, 3, 8, 8], result, arrays))


@pytest.mark.parametrize("op, shape", [("ConvInteger", (4, 3, 3, 3)), ("MatMulInteger", (8, 5))])
def test_dynamic_quantization_is_calibrated(saved, op, shape):
    """As onnxruntime's `quantize_dynamic` writes it: integers of a scale that each run measures."""
    weights = np.random.default_rng(0).integers(-100, 100, shape).astype(np.int8)
    arrays = {"w": weights, "wz": np.int8(3), "ws": np.float32(0.01)}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(op, ["q", "w", "z", "wz"], ["i"]),
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Mul", ["s", "ws"], ["both"]),
        node("Mul", ["f", "both"], ["y"]),
    ]
    file = saved(nodes, [1, 3, 8, 8], [1, 4, 6, 6] if op == "ConvInteger" else [1, 3, 8, 5], arrays)
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    captured = capture(file, calibration=[{"x": torch.from_numpy(x)}])
    (dynamic,) = ReferenceEvaluator(str(file)).run(None, {"x": x})
    (result,) = quantize(captured).module()(torch.from_numpy(x))
    got = result.numpy()
    assert 10 * np.log10(dynamic.var() / ((dynamic - got) ** 2).mean()) > 30


@pytest.mark.parametrize(
    ("nodes", "what", "where"),
    [
        ([("Frobnicate", ["x"])], "the op `Frobnicate` has no import", "Frobnicate"),
        ([("RandomNormalLike", ["x"])], "it draws random numbers", "RandomNormalLike"),
        ([("NonZero", ["x"])], "`x` decides what is compiled, and depends on an input", ""),
        ([("SequenceConstruct", ["x", "x"])], "the op `SequenceConstruct` has no import", "SequenceConstruct"),
        ([("com.acme.Conv", ["x"])], "the op `com.acme.Conv` has no import", "Conv"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(saved, nodes, what, where):
    made = [node(op.rpartition(".")[2], given, ["y"], domain=op.rpartition(".")[0]) for op, given in nodes]
    with pytest.raises(ModelError) as error:
        capture(saved(made, [2, 3], [2, 3], domains=("com.acme",)))
    assert error.value.what == what and where in error.value.where


def test_an_attribute_that_is_not_known_is_named(saved):
    with pytest.raises(ModelError, match="its attribute `consumed_inputs` is not known"):
        capture(saved([node("Relu", ["x"], ["y"], consumed_inputs=[0])], [2, 3], [2, 3], opset=1))


def test_an_importable_op_that_fails_is_named(saved):
    with pytest.raises(ModelError) as error:
        capture(saved([node("Reshape", ["x", "s"], ["y"], "flat")], [2, 3], [7], {"s": np.array([7])}))
    assert "Reshape `flat`" in error.value.where and "shape '[7]' is invalid" in error.value.why


def test_a_constant_that_no_board_holds_is_refused(saved):
    nodes = [node("Expand", ["c", "s"], ["k"]), node("ReduceMean", ["k"], ["m"]), node("Add", ["x", "m"], ["y"])]
    with pytest.raises(ModelError, match=r"its result (needs more than 2 GiB|has .* elements)") as caught:
        capture(saved(nodes, [1, 4], [1, 4], {"c": np.ones(1, np.float32), "s": np.array([1 << 16, 1 << 16])}))
    assert caught.value.where == "Expand `k`"


def test_nested_loops_are_counted(saved, monkeypatch):
    monkeypatch.setattr("tosaic.frontend.onnx_scope._MOST_NODES", 50)
    inner = loop_body("b", [node("Identity", ["cb"], ["ob"]), node("Add", ["vb", "one"], ["wb"])])
    outer = loop_body("a", [node("Identity", ["ca"], ["oa"]), node("Loop", ["n", "", "va"], ["wa"], body=inner)])
    arrays = {"n": np.array(9), "one": np.ones(1, np.float32)}
    with pytest.raises(ModelError, match="more than 50 nodes, those of a loop counted once for each iteration"):
        capture(saved([node("Loop", ["n", "", "x"], ["y"], body=outer)], [1, 4], [1, 4], arrays))


def loop_body(name, nodes):
    """One carried value, `v` before and `w` after an iteration."""
    value = helper.make_tensor_value_info
    given = [value(f"i{name}", INT64, []), value(f"c{name}", onnx.TensorProto.BOOL, []), value(f"v{name}", FLOAT, None)]
    return helper.make_graph(
        nodes, name, given, [value(f"o{name}", onnx.TensorProto.BOOL, []), value(f"w{name}", FLOAT, None)]
    )
