"""What onnxruntime's quantizer writes, in each of its formats and types, computes in integers what onnxruntime does."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from tosaic.backends.reference import prepare
from tosaic.compiler.accuracy import compute
from tosaic.frontend import capture, import_program, quantize
from tosaic.passes import run_phases
from tosaic.support.mlir import walk

onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
quantization = pytest.importorskip("onnxruntime.quantization")
shape_inference = pytest.importorskip("onnxruntime.quantization.shape_inference")
node, FLOAT = onnx.helper.make_node, onnx.TensorProto.FLOAT
TYPES = {
    "s8": quantization.QuantType.QInt8,
    "u8": quantization.QuantType.QUInt8,
    "s16": quantization.QuantType.QInt16,
    "u16": quantization.QuantType.QUInt16,
}
STATIC = [
    *((kind, *types) for kind in ("QOperator", "QDQ") for types in (("u8", "u8"), ("u8", "s8"), ("s8", "s8"))),
    ("QDQ", "s16", "s8"),
    ("QDQ", "u16", "u8"),
]


class Samples(quantization.CalibrationDataReader):
    """Four random images, the first of which is compared."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.images = [rng.standard_normal((1, 3, 16, 16)).astype(np.float32) for _ in range(4)]
        self._left = iter(self.images)

    def get_next(self):
        image = next(self._left, None)
        return None if image is None else {"x": image}


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A float graph of the layers that the quantizer knows, with shapes, as its documentation asks for."""
    rng, arrays = np.random.default_rng(0), dict[str, np.ndarray]()

    def weight(name, *shape):
        arrays[name] = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        return name

    arrays |= {"low": np.float32(0), "high": np.float32(6), "scales": np.array([1, 1, 2, 2], np.float32)}
    nodes = [
        node("Conv", ["x", weight("w1", 8, 3, 3, 3), weight("b1", 8)], ["conv"], pads=[1, 1, 1, 1]),
        node("Relu", ["conv"], ["relu"]),
        node("Conv", ["relu", weight("w2", 8, 1, 3, 3), weight("b2", 8)], ["depthwise"], group=8, pads=[1, 1, 1, 1]),
        node("Clip", ["depthwise", "low", "high"], ["clip"]),
        node("Add", ["relu", "clip"], ["sum"]),
        node("MaxPool", ["sum"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Sigmoid", ["pool"], ["gate"]),
        node("Mul", ["pool", "gate"], ["swish"]),
        node("LeakyRelu", ["swish"], ["leaky"], alpha=0.1),
        node("Concat", ["leaky", "pool"], ["joined"], axis=1),
        node("AveragePool", ["joined"], ["means"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["means", "", "scales"], ["large"], mode="nearest"),
        node("Transpose", ["large"], ["pixels"], perm=[0, 2, 3, 1]),
        node("MatMul", ["pixels", weight("w3", 16, 12)], ["product"]),
        node("Transpose", ["product"], ["channels"], perm=[0, 3, 1, 2]),
        node("GlobalAveragePool", ["channels"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Gemm", ["flat", weight("w4", 10, 12), weight("b4", 10)], ["hidden"], transB=1),
        node("Gemm", ["hidden", weight("w5", 10, 6), weight("b5", 6)], ["y"]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(n, FLOAT, s) for n, s in (("x", [1, 3, 16, 16]), ("y", [1, 6])))
    constants = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "net", [x], [y], constants)
    folder = tmp_path_factory.mktemp("onnxruntime")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), folder / "float.onnx")
    logging.disable(logging.WARNING)
    shape_inference.quant_pre_process(folder / "float.onnx", folder / "shaped.onnx")
    yield folder / "shaped.onnx"
    logging.disable(logging.NOTSET)


def results(path):
    """Of the compiled module, as integers, and of onnxruntime without its own optimizations, as real values."""
    (image, *_) = samples = Samples().images
    captured = capture(str(path), calibration=[{"x": torch.from_numpy(one)} for one in samples])
    module = import_program(quantize(captured))
    run_phases(module)
    floats = [op.name for op in walk(module) for one in op.results if "f32" in str(one.type)]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return compute(module, prepare(module), [image]).outputs[0], session.run(None, {"x": image})[0], floats


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize(("kind", "activations", "weights"), STATIC)
def test_static_quantization(net, tmp_path, kind, activations, weights, per_channel):
    path = tmp_path / "quantized.onnx"
    quantization.quantize_static(
        net, path, Samples(), quant_format=quantization.QuantFormat[kind], per_channel=per_channel,
        activation_type=TYPES[activations], weight_type=TYPES[weights],
    )  # fmt: skip
    got, want, floats = results(path)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    scale, zero = constants["y_scale"], constants["y_zero_point"]
    stored = want / scale
    if activations.endswith("16"):
        limits = np.iinfo(zero.dtype)
        stored *= 32767 / max(limits.max - int(zero), int(zero) - limits.min)
        assert np.abs(got - stored).max() <= 40  # of 65,536: each of 20 layers is rounded twice
    else:
        assert np.abs(got - stored - int(zero) + (128 if activations == "u8" else 0)).max() <= 2.01
    asymmetric = kind == "QOperator" and weights == "u8" and per_channel
    assert bool(floats) == asymmetric  # zero points of channels are none of TOSA's


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("weights", ["u8", "s8"])
def test_dynamic_quantization(net, tmp_path, weights, per_channel):
    path = tmp_path / "quantized.onnx"
    quantization.quantize_dynamic(net, path, weight_type=TYPES[weights], per_channel=per_channel)
    got, want, floats = results(path)
    step = (want @ (got - got.mean()).T) / ((got - got.mean()) ** 2).sum()
    assert not floats
    difference = (got - got.mean()) * step - (want - want.mean())
    assert 10 * np.log10(want.var() / difference.var()) > 25
