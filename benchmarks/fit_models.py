"""Models that memory decides on, beside those of the zoo: `tosaic fit benchmarks/fit_models.py:NAME`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from tosaic.zoo.mobilenet_v2 import MobileNetV2, convolution
from tosaic.zoo.seeded import images, initialize

Model = tuple[nn.Module, tuple[Tensor, ...], list[tuple[Tensor, ...]]]


def mobilenet_v2_035_144() -> Model:
    """MobileNetV2 of width 0.35 on 144x144 images, 1000 classes: the model of msf-CNN's figures."""
    return _seeded(MobileNetV2(width=0.35), images(6, 3, 3, 144, 144))


def mobilenet_v2_030_80() -> Model:
    """MobileNetV2 of width 0.30 on 80x80 images, 2 classes: the person detector of Plumerai's figures."""
    return _seeded(MobileNetV2(classes=2, width=0.30), images(6, 3, 3, 80, 80))


class UNet(nn.Module):
    """Three scales of two convolutions each, joined by concatenations; f32[1, 1, 64, 64] -> f32[1, 2, 64, 64]."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.down = nn.ModuleList([_twice(1, 8), _twice(8, 16)])
        self.bottom = _twice(16, 32)
        self.up = nn.ModuleList([_twice(48, 16), _twice(24, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for level in self.up:
            x = level(torch.cat([interpolate(x, scale_factor=2.0, mode=self.mode), kept.pop()], 1))
        return self.head(x)


def u_net() -> Model:
    return _seeded(UNet("nearest"), images(6, 3, 1, 64, 64))


def u_net_bilinear() -> Model:
    return _seeded(UNet("bilinear"), images(6, 3, 1, 64, 64))


class Tcn(nn.Module):
    """Dilated convolutions in time with shortcuts (Bai et al. 2018); 96 frames f32[1, 96, 40] -> f32[1, 12]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(40, 64, 1)
        self.layers = nn.ModuleList([nn.Conv1d(64, 64, 3, dilation=2**n) for n in range(4)])
        self.classifier = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x.transpose(1, 2)))
        for layer in self.layers:
            y = torch.relu(layer(x))
            x = y + x[:, :, -y.shape[2] :]
        return self.classifier(x[:, :, -1])


def tcn() -> Model:
    generator = torch.Generator().manual_seed(7)
    return _seeded(Tcn(), [(torch.randn(1, 96, 40, generator=generator),) for _ in range(4)])


class Detector(nn.Module):
    """A narrow MobileNetV2 with SSD heads on two scales: boxes and classes; f32[1, 3, 96, 96] -> two tensors."""

    def __init__(self) -> None:
        super().__init__()
        features = MobileNetV2(width=0.35).features
        self.near, self.far = features[:14], features[14:17]
        channels = (32, 56)  # 96 and 160 at that width
        self.boxes = nn.ModuleList([_head(c, 3 * 4) for c in channels])
        self.classes = nn.ModuleList([_head(c, 3 * 5) for c in channels])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        near = self.near(x)
        scales = [near, self.far(near)]
        boxes = [_rows(head(scale), 4) for head, scale in zip(self.boxes, scales, strict=True)]
        classes = [_rows(head(scale), 5) for head, scale in zip(self.classes, scales, strict=True)]
        return torch.cat(boxes, 1), torch.cat(classes, 1)


def detector() -> Model:
    return _seeded(Detector(), images(6, 3, 3, 96, 96))


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(convolution(inputs, outputs, 3), convolution(outputs, outputs, 3))


def _head(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(convolution(inputs, inputs, 3, groups=inputs), nn.Conv2d(inputs, outputs, 1))


def _rows(x: Tensor, width: int) -> Tensor:
    return x.permute(0, 2, 3, 1).reshape(1, -1, width)


def _seeded(module: nn.Module, batches: list[tuple[Tensor, ...]]) -> Model:
    return initialize(module, batches), batches[0], batches[1:]
