"""MobileNetV2 1.0 for 224x224 images (Sandler et al. 2018, table 2)."""

from __future__ import annotations

from torch import Tensor, nn

from tosaic.zoo.seeded import images

# (expansion, output channels, repeats, stride of the first)
STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution with batch norm and ReLU6 that keeps the size at stride 1."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand, filter by depth, project; a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = nn.Identity() if expansion == 1 else convolution(inputs, hidden, 1)
        self.filter = convolution(hidden, hidden, 3, stride, groups=hidden)
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.filter(self.expand(x)))
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """A stem, seventeen inverted residuals, a 1x1 head of 1280 channels, a global average and a classifier.

    `width` multiplies the channels of all but the head, in eights and by at least 0.9 of what it says.
    """

    def __init__(self, classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()

        def scaled(channels: int) -> int:
            eights = max(8, int(channels * width + 4) // 8 * 8)
            return eights if eights >= 0.9 * channels * width else eights + 8

        channels = scaled(32)
        layers: list[nn.Module] = [convolution(3, channels, 3, 2)]
        for expansion, outputs, repeats, stride in STAGES:
            for index in range(repeats):
                block = InvertedResidual(channels, scaled(outputs), stride if index == 0 else 1, expansion)
                layers.append(block)
                channels = scaled(outputs)
        layers.append(convolution(channels, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def build() -> nn.Module:
    return MobileNetV2()


def samples() -> list[tuple[Tensor, ...]]:
    return images(6, 3, 3, 224, 224)
