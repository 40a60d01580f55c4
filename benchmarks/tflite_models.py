"""Small models with the structures of published `.tflite` files, which TensorFlow converts: for `tflite_gallery.py`.

Each has random weights. It needs tensorflow and tf_keras.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

keras, layers = tf.keras, tf.keras.layers
_SAMPLES = 32  # of the representative data set
_TOKENS = 64

Maker = Callable[[], bytes]


def _convert(model: Any, kind: str = "int8", tokens: bool = False, state: Any = None) -> bytes:
    """A keras model with random weights, or a traced function, as a file.

    Args:
        kind: int8, uint8 (at the edges), 16x8, hybrid, f16 or float.
        tokens: the input is int32.
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
                yield [draw.normal(size=shape).astype(np.float32) for shape in shapes]

    converter.representative_dataset = samples
    ops = tf.lite.OpsSet
    wide = ops.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    converter.target_spec.supported_ops = [wide if kind == "16x8" else ops.TFLITE_BUILTINS_INT8]
    converter._experimental_variable_quantization = kind == "int8"
    edge = {"int8": tf.int8, "uint8": tf.uint8, "16x8": tf.int16}[kind]
    converter.inference_output_type = edge
    if not tokens:
        converter.inference_input_type = edge
    return converter.convert()


def _randomize(model: Any) -> None:
    """Biases and statistics of a network that has been trained on something."""
    draw = np.random.default_rng(0)
    for weight in model.weights:
        name, shape = weight.name.rpartition("/")[2], weight.shape
        if name.startswith(("gamma", "moving_variance")):
            weight.assign(draw.uniform(0.5, 1.5, shape))
        elif name.startswith(("bias", "beta", "moving_mean")):
            weight.assign(draw.normal(0, 0.2, shape))
        elif name.startswith("embeddings"):
            weight.assign(draw.normal(0, 1, shape))
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


def _super_resolution() -> Any:
    x = _image(12, 12, 1)
    y = _cut(_cut(x, 8, 5, activation="relu"), 4, activation="")
    return _model(x, layers.Lambda(lambda t: tf.nn.depth_to_space(t, 2))(y))


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

    module = Stream()
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
        import flatbuffers

        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        builder = flatbuffers.Builder()
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _hotword() -> bytes:
    """Two layers of SVDF and a dense one, as the hotword and speech models that TensorFlow Lite was shown with."""
    file, draw, size = _File("hotword"), np.random.default_rng(5), 12
    x = last = file.tensor((1, size), "INT8", 0.05, -3)
    scale, zero_point = 0.05, -3
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
        last, size, scale, zero_point = out, units, 0.04, -128
    weights = draw.integers(-127, 128, (3, size)).astype(np.int8)
    result = file.tensor((1, 3), "INT8", 0.05, 4)
    bias = file.tensor((3,), "INT32", scale * 0.01, 0, draw.integers(-2000, 2000, 3).astype(np.int32))
    options = schema.FullyConnectedOptionsT()
    dense = [last, file.tensor(weights.shape, "INT8", 0.01, 0, weights), bias]
    file.op("FULLY_CONNECTED", dense, [result], options, version=4)
    return file.bytes([x], [result])
