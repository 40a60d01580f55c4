"""A float model to a `.tflite` file in int8, by TensorFlow's converter, where it is installed.

TensorFlow and torch-mlir do not load into one process, so `in_a_process` runs this file as one of its own.
"""

from __future__ import annotations

import operator
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

aten = torch.ops.aten

_CHANNELS_LAST = {1: 3, 2: 1, 3: 2}


def in_a_process(program: ExportedProgram, calibration: Sequence[Tensor]) -> bytes:
    """`as_tflite` of a trained model, padded as PyTorch does.

    Raises:
        CalledProcessError: the converter fails.
    """
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        files = [Path(folder, name) for name in ("model.pt2", "samples.pt", "model.tflite")]
        torch.export.save(program, files[0])
        torch.save(list(calibration), files[1])
        subprocess.run([sys.executable, __file__, *files], check=True, capture_output=True)
        return files[2].read_bytes()


def as_tflite(program: ExportedProgram, calibration: Sequence[Tensor], same: bool = False) -> bytes:
    """A float model of one input in int8; images are NHWC.

    Args:
        same: whether padding is `SAME`, as users of TensorFlow have it, which may lie a pixel beside PyTorch's.
    """
    tf = import_module("tensorflow")
    whole = (aten.hardswish.default, aten.hardsigmoid.default, aten.scaled_dot_product_attention.default)
    table = {op: made for op, made in torch.export.default_decompositions().items() if op not in whole}
    assert program.example_inputs is not None
    (example,), _ = program.example_inputs
    graph = program.run_decompositions(table).module(check_guards=False)
    images = example.ndim == 4

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec(nhwc(example).shape if images else example.shape, tf.float32)]
    )
    def function(x: Any) -> Any:
        return _Tensorflow(graph, images, same).run(x)

    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([nhwc(x).numpy() if images else x.numpy()] for x in calibration)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def nhwc(x: Tensor) -> Tensor:
    """An image as TensorFlow has it."""
    return x.permute(0, 2, 3, 1).contiguous()


class _Tensorflow(fx.Interpreter):
    """A graph of ATen executed by TensorFlow; what has four dimensions is NHWC where the input is an image."""

    def __init__(self, graph: fx.GraphModule, images: bool, same: bool) -> None:
        super().__init__(graph)
        self.images, self.same, self.tf = images, same, import_module("tensorflow")

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> np.ndarray:
        return super().get_attr(target, args, kwargs).detach().numpy()

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator.getitem:
            parts, number = args
            return parts[number] if isinstance(parts, list) else parts  # of several results an op gives the first
        name = target.overloadpacket.__name__.lstrip("_")
        plain = {
            "relu": self.tf.nn.relu,
            "sigmoid": self.tf.nn.sigmoid,
            "tanh": self.tf.nn.tanh,
            "add": operator.add,
            "sub": operator.sub,
            "mul": operator.mul,
            "bmm": self.tf.matmul,
            "gelu": self.tf.nn.gelu,
        }
        return plain[name](*args) if name in plain else getattr(self, name)(*args, **kwargs)

    def convolution(self, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any) -> Any:
        *_, groups = rest
        if any(padding) and not self.same:
            x = self.tf.pad(x, [(0, 0), *((size, size) for size in padding), (0, 0)])
        window = {"padding": "SAME" if any(padding) and self.same else "VALID", "dilations": dilation}
        if groups == 1:
            y = self.tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), stride, **window)
        else:
            y = self.tf.nn.depthwise_conv2d(x, weight.transpose(2, 3, 0, 1), [1, *stride, 1], **window)
        return y if bias is None else y + bias

    def native_batch_norm_legit_no_training(
        self, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, _momentum: float, epsilon: float
    ) -> Any:
        factor = weight / np.sqrt(variance + epsilon)
        return x * factor + (bias - mean * factor)

    def constant_pad_nd(self, x: Any, sizes: Sequence[int], value: float = 0.0) -> Any:
        left, right, top, bottom = sizes
        return self.tf.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=value)

    def hardtanh(self, x: Any, low: float, high: float) -> Any:
        return self.tf.nn.relu6(x) if (low, high) == (0, 6) else self.tf.clip_by_value(x, low, high)

    def hardswish(self, x: Any) -> Any:
        return x * self.tf.nn.relu6(x + 3) * (1 / 6)

    def hardsigmoid(self, x: Any) -> Any:
        return self.tf.nn.relu6(x + 3) * (1 / 6)

    def mean(self, x: Any, dims: Sequence[int], keep: bool = False) -> Any:
        return self.tf.reduce_mean(x, self._axes(x, dims), keep)

    def squeeze(self, x: Any, dims: Sequence[int]) -> Any:
        return self.tf.squeeze(x, [axis for axis in self._axes(x, dims) if x.shape[axis] == 1])

    def unsqueeze(self, x: Any, dim: int) -> Any:
        return self.tf.expand_dims(x, dim)

    def _axes(self, x: Any, dims: Sequence[int]) -> list[int]:
        """The axes of what PyTorch calls so."""
        found = [dim % len(x.shape) for dim in dims]
        return [_CHANNELS_LAST.get(dim, 0) for dim in found] if self.images and len(x.shape) == 4 else found

    def split_with_sizes(self, x: Any, sizes: Sequence[int], dim: int = 0) -> list[Any]:
        return list(self.tf.split(x, sizes, dim))

    def slice(self, x: Any, dim: int = 0, start: int = 0, end: int = sys.maxsize) -> Any:
        return x[(*[slice(None)] * dim, slice(start, end))]

    def select(self, x: Any, dim: int, index: int) -> Any:
        return self.tf.gather(x, index % x.shape[dim], axis=dim)

    def full(self, shape: Sequence[int], value: float, **_options: Any) -> Any:
        return self.tf.fill(shape, float(value))

    def cat(self, parts: Sequence[Any], dim: int = 0) -> Any:
        return self.tf.concat(parts, dim)

    def view(self, x: Any, shape: Sequence[int]) -> Any:
        return self.tf.reshape(x, shape)

    def permute(self, x: Any, dims: Sequence[int]) -> Any:
        return x.transpose(dims) if isinstance(x, np.ndarray) else self.tf.transpose(x, dims)

    def clone(self, x: Any, **_options: Any) -> Any:
        return x

    def addmm(self, bias: Any, x: Any, weight: Any) -> Any:
        return self.tf.matmul(x, weight) + bias

    def native_layer_norm(self, x: Any, shape: Sequence[int], weight: Any, bias: Any, epsilon: float) -> Any:
        axes = list(range(-len(shape), 0))
        centered = x - self.tf.reduce_mean(x, axes, keepdims=True)
        variance = self.tf.reduce_mean(self.tf.square(centered), axes, keepdims=True)
        return centered * self.tf.math.rsqrt(variance + epsilon) * weight + bias

    def scaled_dot_product_attention(self, query: Any, key: Any, value: Any) -> Any:
        scores = self.tf.matmul(query, key, transpose_b=True) * (int(query.shape[-1]) ** -0.5)
        return self.tf.matmul(self.tf.nn.softmax(scores), value)


if __name__ == "__main__":
    model, samples, target = map(Path, sys.argv[1:])
    target.write_bytes(as_tflite(torch.export.load(model), torch.load(samples)))
