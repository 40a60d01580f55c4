"""The zoo through other compilers to the same Vela: `python benchmarks/npu_routes.py executorch resnet8`.

`executorch` lowers as its own example for Ethos-U does, and `tensorflow` converts to a `.tflite` file in int8, as the
users of each do; either has to be installed, neither is a dependency. What they give to Vela is compiled as tosaic's
regions are, for the same memories, so that cycles can be compared.
"""

from __future__ import annotations

import csv
import operator
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor, fx, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.npu import NpuOptions
from tosaic.zoo import NAMES, load

aten = torch.ops.aten

ACCELERATORS = ("ethos-u55-128", "ethos-u85-256")


def by_executorch(name: str, accelerator: str, options: NpuOptions) -> Iterator[int]:
    """Vela's cycles for each part that ExecuTorch delegates."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    parts = ("backends.arm.ethosu", "backends.arm.quantizer", "exir")
    ethosu, quantizers, exir = (import_module(f"executorch.{part}") for part in parts)
    module, inputs, calibration = load(name)
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        modes = {"system_config": options.system_config, "memory_mode": options.memory_mode}
        spec = ethosu.EthosUCompileSpec(accelerator, **modes)
        spec.dump_intermediate_artifacts_to(folder)
        quantizer = quantizers.EthosUQuantizer(spec)
        quantizer.set_global(quantizers.get_symmetric_quantization_config())
        prepared = prepare_pt2e(torch.export.export(module, inputs).module(check_guards=False), quantizer)
        for batch in calibration:
            prepared(*batch)
        program = torch.export.export(convert_pt2e(prepared), inputs)
        exir.to_edge_transform_and_lower(program, partitioner=[ethosu.EthosUPartitioner(spec)]).to_executorch()
        for flatbuffer in {file.read_bytes() for file in Path(folder).rglob("*.tosa")}:  # each is dumped twice
            yield compile_region(flatbuffer, accelerator, options).cycles


def by_tensorflow(name: str, accelerator: str, options: NpuOptions) -> Iterator[int]:
    """Vela's cycles for the model as TensorFlow's converter writes it.

    Raises:
        CalledProcessError: Vela fails.
    """
    usual = find_accelerator(accelerator)
    system, memory = options.system_config or usual.system_config, options.memory_mode or usual.memory_mode
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        model = Path(folder) / "model.tflite"
        model.write_bytes(as_tflite(*load(name)))
        subprocess.run(
            [
                Path(sys.executable).parent / "vela", model, "--output-dir", folder,
                "--accelerator-config", accelerator, "--config", "Arm/vela.ini",
                "--system-config", system, "--memory-mode", memory,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        (summary,) = Path(folder).glob("*_summary_*.csv")
        with summary.open() as lines:
            yield from (int(float(row["cycles_total"])) for row in csv.DictReader(lines))


def as_tflite(module: nn.Module, inputs: Sequence[Tensor], calibration: Sequence[Sequence[Tensor]]) -> bytes:
    """A float model in int8 as a `.tflite` file, whose images are NHWC."""
    tf = import_module("tensorflow")
    whole = (aten.hardswish.default, aten.hardsigmoid.default, aten.scaled_dot_product_attention.default)
    table = {op: made for op, made in torch.export.default_decompositions().items() if op not in whole}
    graph = torch.export.export(module, tuple(inputs)).run_decompositions(table).module(check_guards=False)
    (example,) = inputs
    images = example.ndim == 4

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec(_nhwc(example).shape if images else example.shape, tf.float32)]
    )
    def function(x: Any) -> Any:
        return _Tensorflow(graph, images).run(x)

    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([_nhwc(x).numpy() if images else x.numpy()] for (x,) in calibration)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


class _Tensorflow(fx.Interpreter):
    """A graph of ATen executed by TensorFlow; what has four dimensions is NHWC where the input is an image.

    Padding is `SAME`, as users of TensorFlow have it, which may lie a pixel beside PyTorch's.
    """

    def __init__(self, graph: fx.GraphModule, images: bool) -> None:
        super().__init__(graph)
        self.images, self.tf = images, import_module("tensorflow")

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> np.ndarray:
        return super().get_attr(target, args, kwargs).detach().numpy()

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator.getitem:
            return args[0]  # an op of several results gives its first
        name = target.overloadpacket.__name__.lstrip("_")
        plain = {
            "relu": self.tf.nn.relu,
            "add": operator.add,
            "mul": operator.mul,
            "bmm": self.tf.matmul,
            "gelu": self.tf.nn.gelu,
        }
        return plain[name](*args) if name in plain else getattr(self, name)(*args, **kwargs)

    def convolution(self, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any) -> Any:
        *_, groups = rest
        window = {"padding": "SAME" if any(padding) else "VALID", "dilations": dilation}
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

    def hardtanh(self, x: Any, low: float, high: float) -> Any:
        return self.tf.nn.relu6(x) if (low, high) == (0, 6) else self.tf.clip_by_value(x, low, high)

    def hardswish(self, x: Any) -> Any:
        return x * self.tf.nn.relu6(x + 3) * (1 / 6)

    def hardsigmoid(self, x: Any) -> Any:
        return self.tf.nn.relu6(x + 3) * (1 / 6)

    def mean(self, x: Any, dims: Sequence[int], keep: bool = False) -> Any:
        axes = [{2: 1, 3: 2, 1: 3}.get(dim % 4, 0) for dim in dims] if self.images else dims
        return self.tf.reduce_mean(x, axes, keep)

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


ROUTES: dict[str, Callable[[str, str, NpuOptions], Iterator[int]]] = {
    "executorch": by_executorch,
    "tensorflow": by_tensorflow,
}


@click.command()
@click.argument("route", type=click.Choice(sorted(ROUTES)))
@click.argument("models", nargs=-1, type=click.Choice(NAMES))
@click.option("--accelerators", default=",".join(ACCELERATORS), help="Names, separated by commas.")
@click.option("--memory-mode", help="A section of Vela's vela.ini; default: the accelerator's usual one.")
@click.option("--system-config", help="The same.")
def main(
    route: str, models: Sequence[str], accelerators: str, memory_mode: str | None, system_config: str | None
) -> None:
    """Print Vela's cycles of each part that a route gives it."""
    warnings.simplefilter("ignore")
    for name in models or NAMES:
        for accelerator in accelerators.split(","):
            try:
                parts = list(ROUTES[route](name, accelerator, NpuOptions(memory_mode, system_config)))
                found = f"{sum(parts):,} cycles in {len(parts)} parts"
            except VelaRefusal as refusal:
                found = f"refused: {refusal.why}"
            click.echo(f"{name} on {accelerator}: {found}")


if __name__ == "__main__":
    main()
