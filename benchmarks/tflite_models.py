"""Small models with the structures of published `.tflite` files: `python benchmarks/tflite_models.py FOLDER NAME...`.

TensorFlow converts them, or they are written op by op. Their weights are random. It needs tensorflow and tf_keras, and
a process of its own: TensorFlow and torch-mlir do not load into the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
tf = import_module("tensorflow")
schema = import_module("tensorflow.lite.python.schema_py_generated")
keras, layers = tf.keras, tf.keras.layers
_SAMPLES = 32  # of the representative data set
_TOKENS = 64


def _convert(model: Any, kind: str = "int8", tokens: bool = False, state: Any = None, by_channel: bool = True) -> bytes:
    """A keras model with random weights, or a traced function, as a file.

    Args:
        kind: int8, uint8 (at the edges), 16x8, hybrid, f16 or float.
        tokens: the input is int32.
        state: the module whose variables the function keeps.
        by_channel: weights have a scale for each channel.
    """
    if isinstance(model, keras.Model):
        _randomize(model)
        inputs = model.inputs
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
    else:
        inputs = model.inputs[: len(model.structured_input_signature[0])]
        converter = tf.lite.TFLiteConverter.from_concrete_functions([model], state)
    if kind == "float":
        return converter.convert()
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "f16":
        converter.target_spec.supported_types = [tf.float16]
    if kind in ("f16", "hybrid"):
        return converter.convert()
    draw = np.random.default_rng(1)
    shapes = [[size or 1 for size in one.shape] for one in inputs]

    def samples() -> Any:
        for _ in range(_SAMPLES):
            if tokens:
                yield [draw.integers(0, _TOKENS, shape).astype(np.int32) for shape in shapes]
            else:
                yield [_patterns(draw, shape) for shape in shapes]

    converter.representative_dataset = samples
    ops = tf.lite.OpsSet
    wide = ops.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    converter.target_spec.supported_ops = [wide if kind == "16x8" else ops.TFLITE_BUILTINS_INT8]
    converter._experimental_disable_per_channel = not by_channel
    converter._experimental_variable_quantization = kind == "int8"
    edge = {"int8": tf.int8, "uint8": tf.uint8, "16x8": tf.int16}[kind]
    converter.inference_output_type = edge
    if not tokens:
        converter.inference_input_type = edge
    return converter.convert()


def _patterns(draw: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Noise around a level of its own in each channel; float32."""
    return (draw.normal(0, 1.5, shape[-1]) + draw.normal(0, draw.uniform(0.2, 1.5), shape)).astype(np.float32)


def _randomize(model: Any) -> None:
    """Biases and statistics of a network that has been trained on something."""
    draw = np.random.default_rng(0)
    for weight in model.weights:
        name, shape = weight.name.rpartition("/")[2], weight.shape
        if name.startswith(("gamma", "moving_variance")):
            weight.assign(draw.uniform(0.5, 1.5, shape))
        elif name.startswith(("bias", "beta", "moving_mean")):
            weight.assign(draw.normal(0, 0.2, shape))
        else:
            weight.assign(draw.normal(0, np.sqrt(2 / max(np.prod(shape[:-1]), 1)), shape))


def _cut(x: Any, channels: int, size: int = 3, stride: int = 1, activation: str = "relu6", **more: Any) -> Any:
    """Convolution, batch norm, activation."""
    x = layers.Conv2D(channels, size, stride, padding="same", use_bias=False, **more)(x)
    x = layers.BatchNormalization()(x)
    return layers.Activation(tf.nn.relu6 if activation == "relu6" else activation)(x) if activation else x


def _depthwise(x: Any, size: int = 3, stride: int = 1, activation: str = "relu6", rate: int = 1) -> Any:
    x = layers.DepthwiseConv2D(size, stride, padding="same", use_bias=False, dilation_rate=rate)(x)
    x = layers.BatchNormalization()(x)
    return layers.Activation(tf.nn.relu6 if activation == "relu6" else activation)(x)


def _separable(x: Any, channels: int, stride: int = 1, activation: str = "relu6") -> Any:
    return _cut(_depthwise(x, 3, stride, activation), channels, 1, activation=activation)


def _inverted(x: Any, channels: int, stride: int = 1, factor: int = 3, rate: int = 1) -> Any:
    """MobileNetV2's block."""
    y = _cut(x, x.shape[-1] * factor, 1)
    y = _cut(_depthwise(y, 3, stride, rate=rate), channels, 1, activation="")
    return layers.Add()([x, y]) if stride == 1 and x.shape[-1] == channels else y


def _image(height: int = 24, width: int = 24, channels: int = 3, batch: int | None = 1) -> Any:
    return keras.Input((height, width, channels), batch)


def _model(x: Any, y: Any) -> Any:
    return keras.Model(x, y)


def _head(x: Any, classes: int = 5, activation: str = "softmax") -> Any:
    return layers.Dense(classes, activation=activation)(layers.GlobalAveragePooling2D()(x))


def _autoencoder() -> Any:
    """ad01 of MLPerf Tiny; its batch is open."""
    x = y = keras.Input((64,))
    for width in (32, 32, 8, 32, 32):
        y = layers.Activation("relu")(layers.BatchNormalization()(layers.Dense(width)(y)))
    return _model(x, layers.Dense(64)(y))


def _keywords() -> Any:
    """kws of MLPerf Tiny: DS-CNN."""
    x = _image(49, 10, 1, None)
    y = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(16, (10, 4), 2, padding="same")(x)))
    for _ in range(3):
        y = _separable(y, 16, activation="relu")
    y = layers.AveragePooling2D((y.shape[1], y.shape[2]))(y)
    return _model(x, layers.Dense(12, activation="softmax")(layers.Flatten()(y)))


def _mobilenet(size: int = 32, channels: int = 3, batch: int | None = 1, pool: bool = False, classes: int = 2) -> Any:
    """MobileNetV1 0.25, as vww of MLPerf Tiny, and as person_detect, which ends in a convolution."""
    x = _image(size, size, channels, batch)
    y = _cut(x, 8, 3, 2)
    for width, stride in ((16, 1), (32, 2), (32, 1), (64, 2)):
        y = _separable(y, width, stride)
    if not pool:
        return _model(x, _head(y, classes))
    y = layers.AveragePooling2D((y.shape[1], y.shape[2]))(y)
    y = layers.Reshape((classes,))(layers.Conv2D(classes, 1)(y))
    return _model(x, layers.Softmax()(y))


def _resnet() -> Any:
    """ResNet-8 of MLPerf Tiny."""
    x = _image(16, 16, 3, None)
    y = _cut(x, 8, activation="relu")
    for width, stride in ((8, 1), (16, 2), (32, 2)):
        z = _cut(_cut(y, width, 3, stride, "relu"), width, activation="")
        y = y if stride == 1 else layers.Conv2D(width, 1, stride, padding="same")(y)
        y = layers.Activation("relu")(layers.Add()([y, z]))
    y = layers.Flatten()(layers.AveragePooling2D(y.shape[1])(y))
    return _model(x, layers.Dense(10, activation="softmax")(y))


def _mobilenet_v2() -> Any:
    x = _image()
    y = _inverted(_cut(x, 8, 3, 2), 8)
    y = _inverted(_inverted(y, 12, 2), 12)
    return _model(x, _head(_cut(y, 32, 1)))


def _efficientnet_lite() -> Any:
    x = _image()
    y = _cut(x, 8, 3, 2)
    for width, stride, size in ((8, 1, 3), (12, 2, 5), (12, 1, 5)):
        z = _cut(y, y.shape[-1] * 4, 1)
        z = _cut(_depthwise(z, size, stride), width, 1, activation="")
        y = layers.Add()([y, z]) if stride == 1 and y.shape[-1] == width else z
    return _model(x, _head(_cut(y, 32, 1)))


def _mobilenet_v3() -> Any:
    """Hard swish, and gates of channels."""
    x = _image()

    def swish(t: Any) -> Any:
        return t * tf.nn.relu6(t + 3.0) * (1 / 6)

    y = layers.Lambda(swish)(layers.BatchNormalization()(layers.Conv2D(8, 3, 2, padding="same")(x)))
    z = layers.Lambda(swish)(layers.BatchNormalization()(layers.DepthwiseConv2D(5, padding="same")(y)))
    gate = layers.Conv2D(4, 1, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(z))
    gate = layers.Lambda(lambda t: tf.nn.relu6(t + 3.0) * (1 / 6))(layers.Conv2D(8, 1)(gate))
    y = layers.Add()([y, layers.Conv2D(8, 1)(layers.Multiply()([z, gate]))])
    return _model(x, _head(y))


def _deeplab() -> Any:
    """Dilated depthwise convolutions, and features of the whole image, resized, beside those of each place."""
    x = _image(33, 33)
    y = _inverted(_inverted(_cut(x, 8, 3, 2), 12, 2), 12, rate=2)
    whole = _cut(layers.GlobalAveragePooling2D(keepdims=True)(y), 8, 1, activation="relu")
    size = (y.shape[1], y.shape[2])
    whole = layers.Lambda(lambda t: tf.compat.v1.image.resize_bilinear(t, size, align_corners=True))(whole)
    y = layers.Concatenate()([whole, _cut(y, 8, 1, activation="relu")])
    y = layers.Conv2D(4, 1)(_cut(y, 8, 1, activation="relu"))
    y = layers.Lambda(lambda t: tf.compat.v1.image.resize_bilinear(t, (33, 33), align_corners=True))(y)
    return _model(x, y)


def _ssd() -> Any:
    """Boxes and classes at two scales."""
    x = _image(32, 32)
    first = _inverted(_cut(x, 8, 3, 2), 16, 2)
    second = _inverted(first, 24, 2)
    boxes, classes = [], []
    for y in (first, second):
        boxes.append(layers.Reshape((-1, 4))(layers.Conv2D(3 * 4, 1)(_depthwise(y))))
        classes.append(layers.Reshape((-1, 6))(layers.Conv2D(3 * 6, 1)(_depthwise(y))))
    scores = layers.Activation("sigmoid")(layers.Concatenate(axis=1)(classes))
    return _model(x, [layers.Concatenate(axis=1)(boxes), scores])


def _posenet() -> Any:
    """Heat maps, offsets and displacements of key points."""
    x = _image(33, 33)
    y = _cut(x, 8, 3, 2)
    for width, stride in ((16, 2), (24, 1)):
        y = _separable(y, width, stride)
    heat = layers.Conv2D(5, 1, activation="sigmoid")(y)
    return _model(x, [heat, layers.Conv2D(10, 1)(y), layers.Conv2D(8, 1)(y)])


def _hourglass() -> Any:
    """U-Net: transposed convolutions beside what the way down has left."""
    x = _image(16, 16, 1)
    a = _cut(x, 8, activation="relu")
    b = _cut(layers.MaxPooling2D()(a), 16, activation="relu")
    y = layers.Conv2DTranspose(8, 3, 2, padding="same", activation="relu")(b)
    y = _cut(layers.Concatenate()([a, y]), 8, activation="relu")
    return _model(x, layers.Conv2D(1, 1, activation="sigmoid")(y))


def _yamnet() -> Any:
    """MobileNetV1 on patches of log-mel spectra, with a sigmoid for each class."""
    x = keras.Input((48, 16), 1)
    y = layers.Reshape((48, 16, 1))(x)
    y = _cut(y, 8, 3, 2, "relu")
    for width, stride in ((16, 1), (24, 2), (32, 2)):
        y = _separable(y, width, stride, "relu")
    y = layers.GlobalAveragePooling2D()(y)
    return _model(x, [layers.Dense(12, activation="sigmoid")(y), y])


def _text() -> Any:
    """The average of word vectors."""
    x = keras.Input((16,), 1, dtype=tf.int32)
    y = layers.GlobalAveragePooling1D()(layers.Embedding(_TOKENS, 16)(x))
    return _model(x, layers.Dense(2, activation="softmax")(layers.Dense(16, activation="relu")(y)))


def _micro_speech() -> Any:
    x = keras.Input((49 * 40,), 1)
    y = layers.DepthwiseConv2D((10, 8), 2, padding="same", depth_multiplier=8, activation="relu")(
        layers.Reshape((49, 40, 1))(x)
    )
    return _model(x, layers.Dense(4, activation="softmax")(layers.Flatten()(y)))


def _sine() -> Any:
    x = keras.Input((1,), 1)
    y = layers.Dense(16, activation="relu")(layers.Dense(16, activation="relu")(x))
    return _model(x, layers.Dense(1)(y))


def _magic_wand() -> Any:
    x = _image(64, 3, 1)
    y = layers.MaxPooling2D((3, 3))(layers.Conv2D(8, (4, 3), padding="same", activation="relu")(x))
    y = layers.MaxPooling2D((3, 1), padding="same")(layers.Conv2D(16, (4, 1), padding="same", activation="relu")(y))
    y = layers.Dense(16, activation="relu")(layers.Flatten()(y))
    return _model(x, layers.Dense(4, activation="softmax")(y))


def _style() -> Any:
    """Mirrored edges, instance norms, resizing between convolutions."""
    x = _image(16, 16)

    def norm(t: Any) -> Any:
        mean, variance = tf.nn.moments(t, [1, 2], keepdims=True)
        return (t - mean) * tf.math.rsqrt(variance + 1e-3)

    def padded(t: Any) -> Any:
        return tf.pad(t, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")

    y = layers.Conv2D(8, 3, activation=None)(layers.Lambda(padded)(x))
    y = layers.Activation("relu")(layers.Lambda(norm)(y))
    z = layers.Conv2D(8, 3)(layers.Lambda(padded)(y))
    y = layers.Add()([y, layers.Lambda(norm)(z)])
    y = layers.UpSampling2D(2)(y)
    y = layers.Conv2D(3, 3, activation="tanh")(layers.Lambda(padded)(y))
    return _model(x, y)


def _lstm() -> Any:
    """Keywords from spectra, by two LSTMs."""
    x = keras.Input((10, 8), 1)
    y = layers.LSTM(12)(layers.LSTM(12, return_sequences=True)(x))
    return _model(x, layers.Dense(4, activation="softmax")(y))


def _handwriting() -> Any:
    """Strokes forwards and backwards, and characters for each step."""
    x = keras.Input((8, 4), 1)
    y = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    return _model(x, layers.Dense(6, activation="softmax")(y))


def _gru() -> Any:
    x = keras.Input((6, 8), 1)
    y = layers.GRU(8, unroll=True)(x)
    return _model(x, layers.Dense(4, activation="softmax")(y))


def _attention(y: Any, heads: int, width: int) -> Any:
    def split(t: Any) -> Any:
        return layers.Permute((2, 1, 3))(layers.Reshape((-1, heads, width // heads))(t))

    q, k, v = (split(layers.Dense(width)(y)) for _ in range(3))
    scores = layers.Lambda(lambda t: tf.nn.softmax(tf.matmul(t[0], t[1], transpose_b=True) * 0.35))([q, k])
    mixed = layers.Permute((2, 1, 3))(layers.Lambda(lambda t: tf.matmul(t[0], t[1]))([scores, v]))
    return layers.Dense(width)(layers.Reshape((-1, width))(mixed))


def _mobilebert() -> Any:
    """A block with a bottleneck and norms that only scale and shift."""
    x = keras.Input((8, 16), 1)
    draw = np.random.default_rng(2)

    def norm(t: Any) -> Any:
        return t * draw.uniform(0.5, 1.5, t.shape[-1]).astype(np.float32) + draw.normal(size=t.shape[-1]).astype(
            np.float32
        )

    y = layers.Lambda(norm)(layers.Dense(8)(x))
    y = layers.Lambda(norm)(layers.Add()([y, _attention(y, 2, 8)]))
    z = layers.Dense(8)(layers.Dense(16, activation="relu")(y))
    y = layers.Lambda(norm)(layers.Add()([y, z]))
    return _model(x, layers.Lambda(norm)(layers.Add()([x, layers.Dense(16)(y)])))


def _transformer() -> Any:
    """A block with layer norms and GELU."""
    x = keras.Input((8, 16), 1)
    y = layers.LayerNormalization()(layers.Add()([x, _attention(x, 2, 16)]))
    z = layers.Dense(16)(layers.Dense(32, activation=tf.nn.gelu)(y))
    return _model(x, layers.LayerNormalization()(layers.Add()([y, z])))


def _wake_word() -> bytes:
    """A streaming network, whose convolutions over time keep their windows in variables."""
    draw = np.random.default_rng(3)

    class Stream(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.window = tf.Variable(tf.zeros((1, 5, 1, 8)))
            self.later = tf.Variable(tf.zeros((1, 4, 1, 12)))
            self.first = tf.constant(draw.normal(0, 0.3, (5, 1, 8, 12)), tf.float32)
            self.depth = tf.constant(draw.normal(0, 0.5, (4, 1, 12, 1)), tf.float32)
            self.dense = tf.constant(draw.normal(0, 0.5, (12, 1)), tf.float32)

        @tf.function(input_signature=[tf.TensorSpec((1, 1, 1, 8))])
        def step(self, x: Any) -> Any:
            rows = tf.concat([self.window[:, 1:], x], 1)
            self.window.assign(rows)
            y = tf.nn.relu(tf.nn.conv2d(rows, self.first, 1, "VALID"))
            rows = tf.concat([self.later[:, 1:], y], 1)
            self.later.assign(rows)
            y = tf.nn.relu(tf.nn.depthwise_conv2d(rows, self.depth, [1, 1, 1, 1], "VALID"))
            return tf.sigmoid(tf.matmul(tf.reshape(y, (1, 12)), self.dense))

    module: Any = Stream()
    return _convert(module.step.get_concrete_function(), state=module)


class _File:
    """A file written op by op, for what TensorFlow's converter no longer writes."""

    def __init__(self, name: str) -> None:
        self.name, self.graph, self.model = name, schema.SubGraphT(), schema.ModelT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.model.version, self.model.description, self.model.subgraphs = 3, "tosaic", [self.graph]
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []

    def tensor(
        self, shape: Sequence[int], kind: str, scale: float = 0, zero_point: int = 0, data: Any = None, **more: Any
    ) -> int:
        """The number of a new tensor."""
        one = schema.TensorT()
        one.name, one.shape = f"{self.name}_{len(self.graph.tensors)}".encode(), list(shape)
        one.type = getattr(schema.TensorType, kind)
        for key, value in more.items():
            setattr(one, key, value)
        if scale:
            one.quantization = schema.QuantizationParametersT()
            one.quantization.scale, one.quantization.zeroPoint = [scale], [zero_point]
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            one.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(one)
        return len(self.graph.tensors) - 1

    def op(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: Any = None, **more: Any) -> None:
        """An op with an object of its options."""
        code, op = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), more.pop("version", 1)
        code.customCode = more.pop("custom", None)
        op.opcodeIndex, op.inputs, op.outputs = len(self.model.operatorCodes), list(inputs), list(outputs)
        if options is not None:
            op.builtinOptions = options
            op.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__[:-1])
        for key, value in more.items():
            setattr(op, key, value)
        self.model.operatorCodes.append(code)
        self.graph.operators.append(op)

    def bytes(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file."""
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        return _packed(self.model)


def _hotword() -> bytes:
    """Two layers of SVDF and a dense one, as the hotword and speech models that TensorFlow Lite was shown with."""
    file, draw, size = _File("hotword"), np.random.default_rng(5), 12
    x = last = file.tensor((1, size), "INT8", 0.05, -3)
    for units, rank, times in ((8, 1, 6), (6, 2, 4)):
        filters = units * rank
        features = draw.integers(-127, 128, (filters, size)).astype(np.int8)
        over_time = draw.integers(-4000, 4000, (filters, times)).astype(np.int16)
        bias = draw.integers(-3000, 3000, units).astype(np.int32)
        out = file.tensor((1, units), "INT8", 0.04, -128)
        options = schema.SVDFOptionsT()
        options.rank, options.fusedActivationFunction = rank, schema.ActivationFunctionType.RELU
        inputs = [
            last,
            file.tensor(features.shape, "INT8", 0.01, 0, features),
            file.tensor(over_time.shape, "INT16", 2**-14, 0, over_time),
            file.tensor(bias.shape, "INT32", 2**-14 * 2**-11, 0, bias),
            file.tensor((1, filters * times), "INT16", 2**-11, 0, isVariable=True),
        ]
        file.op("SVDF", inputs, [out], options, version=3)
        last, size = out, units
    weights = draw.integers(-127, 128, (3, size)).astype(np.int8)
    result = file.tensor((1, 3), "INT8", 0.05, 4)
    bias = file.tensor((3,), "INT32", 0.04 * 0.01, 0, draw.integers(-2000, 2000, 3).astype(np.int32))
    options = schema.FullyConnectedOptionsT()
    dense = [last, file.tensor(weights.shape, "INT8", 0.01, 0, weights), bias]
    file.op("FULLY_CONNECTED", dense, [result], options, version=4)
    return file.bytes([x], [result])


def _svdf_real() -> bytes:
    """A layer of SVDF on floats."""
    file, draw, (units, rank, times, size) = _File("svdf"), np.random.default_rng(6), (5, 2, 4, 7)
    shapes = (units * rank, size), (units * rank, times), (units,)
    constants = [draw.normal(0, 0.5, shape).astype(np.float32) for shape in shapes]
    x, y = file.tensor((1, size), "FLOAT32"), file.tensor((1, units), "FLOAT32")
    known = [file.tensor(array.shape, "FLOAT32", data=array) for array in constants]
    options = schema.SVDFOptionsT()
    options.rank, options.fusedActivationFunction = rank, schema.ActivationFunctionType.RELU6
    kept = file.tensor((1, units * rank * times), "FLOAT32", isVariable=True)
    file.op("SVDF", [x, *known, kept], [y], options, version=1)
    return file.bytes([x], [y])


def _one_op(
    kind: str, source: tuple, result: tuple, version: int, options: Any = None, *constants: np.ndarray
) -> bytes:
    """A single op of an input and constants without scales; tensors are (shape, type, scale, zero point)."""
    file = _File(kind.lower())
    x, y = file.tensor(*source), file.tensor(*result)
    others = [file.tensor(one.shape, one.dtype.name.upper(), data=one) for one in constants]
    file.op(kind, [x, *others], [y], options, version=version)
    return file.bytes([x], [y])


def _indices(options: Any, kind: str) -> Any:
    options.outputType = getattr(schema.TensorType, kind)
    return options


def _gelu(approximate: bool) -> bytes:
    options, kind = schema.GeluOptionsT(), ((1, 4, 5), "FLOAT32")
    options.approximate = approximate
    return _one_op("GELU", kind, kind, 1, options)


def _matmul_16x8() -> bytes:
    file = _File("matmul_16x8")
    a, b = file.tensor((1, 2, 3, 4), "INT16", 2e-4), file.tensor((1, 2, 4, 5), "INT16", 3e-4)
    y = file.tensor((1, 2, 3, 5), "INT16", 4e-4)
    file.op("BATCH_MATMUL", [a, b], [y], schema.BatchMatMulOptionsT(), version=3)
    return file.bytes([a, b], [y])


def _open() -> bytes:
    """Two ops one behind the other, whose batch is open."""
    file, shape = _File("open"), dict[str, Any](shapeSignature=[-1, 4, 5])
    x = file.tensor((1, 4, 5), "FLOAT32", **shape)
    stored = file.tensor((1, 4, 5), "INT8", 0.1, 3, **shape)
    y = file.tensor((1, 4, 5), "INT8", 0.07, -90, **shape)
    file.op("QUANTIZE", [x], [stored])
    file.op("ABS", [stored], [y], version=2)
    return file.bytes([x], [y])


def _greater() -> bytes:
    """What of two tensors of unlike scales is greater, chosen by SELECT_V2."""
    file = _File("greater")
    a, b = file.tensor((1, 4, 5), "INT8", 0.1, 3), file.tensor((1, 4, 5), "INT8", 0.07, -20)
    which, y = file.tensor((1, 4, 5), "BOOL"), file.tensor((1, 4, 5), "INT8", 0.1, 3)
    file.op("GREATER", [a, b], [which], version=2)
    again = file.tensor((1, 4, 5), "INT8", 0.1, 3)
    file.op("SELECT_V2", [which, a, again], [y])
    return file.bytes([a, b, again], [y])


def _dense_16x8() -> bytes:
    draw, file = np.random.default_rng(7), _File("dense_16x8")
    weights, bias = draw.integers(-127, 128, (5, 6)).astype(np.int8), draw.integers(-(2**20), 2**20, 5)
    x, y = file.tensor((3, 6), "INT16", 2e-4), file.tensor((3, 5), "INT16", 7e-4)
    inputs = [x, file.tensor((5, 6), "INT8", 0.013, 0, weights), file.tensor((5,), "INT64", 2.6e-6, 0, bias)]
    file.op("FULLY_CONNECTED", inputs, [y], schema.FullyConnectedOptionsT(), version=7)
    return file.bytes([x], [y])


def _lstm_layer(coupled: bool = False, looking: bool = False, projected: bool = False, real: bool = False) -> bytes:
    """An LSTM of three steps.

    Args:
        coupled: what is taken is what is not kept.
        looking: the gates look at the cell.
        real: of f32.
    """
    draw, file = np.random.default_rng(8), _File("lstm")
    steps, width, cells, outputs = 3, 5, 6, 4 if projected else 6

    def tensor(shape: Sequence[int], kind: str, scale: float, zero_point: int = 0, **more: Any) -> int:
        return file.tensor(shape, "FLOAT32", **more) if real else file.tensor(shape, kind, scale, zero_point, **more)

    def constant(limit: int, scale: float, *shape: int) -> int:
        kind = {2**7: "INT8", 2**15: "INT16"}.get(limit, "INT32")
        array = draw.integers(1 - limit, limit, shape)
        data = (array * scale).astype(np.float32) if real else array.astype(kind.lower())
        return tensor(shape, kind, scale, data=data)

    def gates(make: Callable[[], int]) -> list[int]:
        return [-1 if coupled and gate == 0 else make() for gate in range(4)]

    def weights(*shape: int) -> int:
        return constant(2**7, 0.005, *shape)

    def bias(size: int) -> int:
        return constant(4000, 1.5e-4, size)

    x, y = tensor((1, steps, width), "INT8", 0.03, -4), tensor((1, steps, outputs), "INT8", 0.007, -9)
    inputs = [x, *gates(lambda: weights(cells, width)), *gates(lambda: weights(cells, outputs))]
    inputs += [-1, *(constant(2**15, 2e-5, cells) for _ in range(2))] if looking else [-1] * 3
    inputs += gates(lambda: bias(cells))
    inputs += [weights(outputs, cells), bias(outputs)] if projected else [-1, -1]
    inputs.append(tensor((1, outputs), "INT8", 0.007, -9, isVariable=True))
    inputs.append(tensor((1, cells), "INT16", 2**-12, isVariable=True))
    between = [] if real else [file.tensor((0,), "FLOAT32") for _ in range(4)]
    if not real:
        between.append(file.tensor((0,), "INT8", *((0.006, 5) if projected else (0.007, -9))))
    options = schema.UnidirectionalSequenceLSTMOptionsT()
    options.fusedActivationFunction = schema.ActivationFunctionType.TANH
    options.cellClip, options.projClip = (2.0, 0.5) if projected else (10.0, 0.0)
    inputs += [-1] * 4
    version = 1 if real else 3
    file.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], options, version=version, intermediates=between)
    return file.bytes([x], [y])


def _resized(kind: str, sizes: tuple[int, int], corners: bool = False, centers: bool = False) -> bytes:
    options = schema.ResizeBilinearOptionsT() if kind == "RESIZE_BILINEAR" else schema.ResizeNearestNeighborOptionsT()
    options.alignCorners, options.halfPixelCenters = corners, centers
    image, wanted = ((1, 4, 5, 2), "INT8", 0.05, 3), ((1, *sizes, 2), "INT8", 0.05, 3)
    return _one_op(kind, image, wanted, 3 if centers else 2, options, np.array(sizes, np.int32))


def _custom() -> bytes:
    """An op that is code of the application."""
    file = _File("custom")
    x, y = (file.tensor((1, 8), "INT8", 0.1) for _ in range(2))
    file.op("CUSTOM", [x], [y], custom=b"MyOp")
    return file.bytes([x], [y])


def _after_vela() -> bytes:
    """What Vela makes of DS-CNN."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dscnn.tflite")
        path.write_bytes(_convert(_keywords()))
        options = ["--accelerator-config", "ethos-u55-128", "--output-dir", folder]
        subprocess.run([sys.executable, "-m", "ethosu.vela", path, *options], check=True, capture_output=True)
        return Path(folder, "dscnn_vela.tflite").read_bytes()


def _as_uint8(model: Any) -> bytes:
    """A file of the first converters: every tensor is uint8, and weights have one scale."""
    file = schema.ModelT.InitFromPackedBuf(_convert(model, by_channel=False), 0)
    for tensor in file.subgraphs[0].tensors:
        if tensor.type == schema.TensorType.INT8:
            tensor.type = schema.TensorType.UINT8
            tensor.quantization.zeroPoint = [int(point) + 128 for point in tensor.quantization.zeroPoint]
            data = file.buffers[tensor.buffer].data
            if data is not None:
                file.buffers[tensor.buffer].data = np.asarray(data, np.uint8) + np.uint8(128)
    return _packed(file)


def _packed(file: Any) -> bytes:
    builder = import_module("flatbuffers").Builder()
    builder.Finish(file.Pack(builder), b"TFL3")
    return bytes(builder.Output())


MAKERS: dict[str, Callable[[], bytes]] = {
    "ad01": lambda: _convert(_autoencoder()),
    "kws": lambda: _convert(_keywords()),
    "vww": lambda: _convert(_mobilenet(batch=None)),
    "resnet8": lambda: _convert(_resnet()),
    "mobilenet_v1": lambda: _as_uint8(_mobilenet(classes=5)),
    "mobilenet_v1_edges": lambda: _convert(_mobilenet(classes=5), "uint8"),
    "mobilenet_v2": lambda: _convert(_mobilenet_v2()),
    "mobilenet_v3": lambda: _convert(_mobilenet_v3()),
    "efficientnet_lite": lambda: _convert(_efficientnet_lite()),
    "deeplab": lambda: _convert(_deeplab()),
    "ssd": lambda: _convert(_ssd()),
    "posenet": lambda: _convert(_posenet()),
    "unet": lambda: _convert(_hourglass()),
    "style": lambda: _convert(_style()),
    "yamnet": lambda: _convert(_yamnet()),
    "text": lambda: _convert(_text(), tokens=True),
    "micro_speech": lambda: _convert(_micro_speech()),
    "person_detect": lambda: _convert(_mobilenet(channels=1, pool=True)),
    "hello_world": lambda: _convert(_sine()),
    "magic_wand": lambda: _convert(_magic_wand()),
    "lstm": lambda: _convert(_lstm()),
    "handwriting": lambda: _convert(_handwriting()),
    "gru": lambda: _convert(_gru()),
    "hotword": _hotword,
    "wake_word": _wake_word,
    "mobilebert": lambda: _convert(_mobilebert()),
    "transformer": lambda: _convert(_transformer()),
    "kws_16x8": lambda: _convert(_keywords(), "16x8"),
    "deeplab_16x8": lambda: _convert(_deeplab(), "16x8"),
    "custom": _custom,
    "vela": _after_vela,
    "ad01_float": lambda: _convert(_autoencoder(), "float"),
    "lstm_float": lambda: _convert(_lstm(), "float"),
    "resnet8_f16": lambda: _convert(_resnet(), "f16"),
    "ad01_hybrid": lambda: _convert(_autoencoder(), "hybrid"),
    "vww_hybrid": lambda: _convert(_mobilenet(), "hybrid"),
    "lstm_hybrid": lambda: _convert(_lstm(), "hybrid"),
}
"""What makes each file of the gallery."""
_WIDE, _UNIT = ((1, 64), "INT16", 2e-4), ((1, 64), "INT16", 2**-15)
_ROWS = ((1, 4, 5), "INT8", 0.1, 3)
MAKERS |= {
    "op_abs": lambda: _one_op("ABS", _ROWS, ((1, 4, 5), "INT8", 0.08, -100), 2),
    "op_quantize": lambda: _one_op("QUANTIZE", ((1, 4, 5), "FLOAT32"), _ROWS, 1),
    "op_quantize_uint8": lambda: _one_op("QUANTIZE", ((1, 4, 5), "FLOAT32"), ((1, 4, 5), "UINT8", 0.02, 131), 1),
    "op_greater": _greater,
    "op_open": _open,
    "op_reverse": lambda: _one_op("REVERSE_V2", _ROWS, ((1, 4, 5), "INT8", 0.2, 9), 2, None, np.array([1], np.int32)),
    "op_arg_min": lambda: _one_op(
        "ARG_MIN", _ROWS, ((1, 4), "INT32"), 2, _indices(schema.ArgMinOptionsT(), "INT32"), np.array(2, np.int32)
    ),
    "op_arg_max": lambda: _one_op(
        "ARG_MAX", _ROWS, ((1, 4), "INT64"), 2, _indices(schema.ArgMaxOptionsT(), "INT64"), np.array(2, np.int32)
    ),
    "op_exp": lambda: _one_op("EXP", _WIDE, ((1, 64), "INT16", 3e-3), 2, schema.ExpOptionsT()),
    "op_gelu": lambda: _gelu(approximate=False),
    "op_gelu_tanh": lambda: _gelu(approximate=True),
    "op_matmul": _matmul_16x8,
    "op_logistic": lambda: _one_op("LOGISTIC", _WIDE, _UNIT, 3),
    "op_tanh": lambda: _one_op("TANH", _WIDE, _UNIT, 3),
    "op_tanh_power": lambda: _one_op("TANH", ((1, 64), "INT16", 2**-11), _UNIT, 3),
    "op_dense": _dense_16x8,
    "op_lstm": _lstm_layer,
    "op_lstm_looking": lambda: _lstm_layer(coupled=True, looking=True),
    "op_lstm_projected": lambda: _lstm_layer(projected=True),
    "op_lstm_both": lambda: _lstm_layer(coupled=True, looking=True, projected=True),
    "op_lstm_real": lambda: _lstm_layer(coupled=True, looking=True, projected=True, real=True),
    "op_svdf_real": _svdf_real,
    "op_bilinear": lambda: _resized("RESIZE_BILINEAR", (7, 9)),
    "op_bilinear_corners": lambda: _resized("RESIZE_BILINEAR", (7, 9), corners=True),
    "op_bilinear_centers": lambda: _resized("RESIZE_BILINEAR", (8, 3), centers=True),
    "op_nearest": lambda: _resized("RESIZE_NEAREST_NEIGHBOR", (8, 5)),
    "op_nearest_corners": lambda: _resized("RESIZE_NEAREST_NEIGHBOR", (7, 9), corners=True),
    "op_nearest_centers": lambda: _resized("RESIZE_NEAREST_NEIGHBOR", (6, 3), centers=True),
}
"""And single ops, for the tests."""


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    for name in names:
        Path(folder, f"{name}.tflite").write_bytes(MAKERS[name]())
