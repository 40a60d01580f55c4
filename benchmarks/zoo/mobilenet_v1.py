"""MobileNetV1 0.25 for 96x96 images, MLPerf Tiny's visual wake words (Howard et al. 2017; Banbury et al. 2021)."""

from __future__ import annotations

from torch import Tensor, nn

from tosaic.zoo.seeded import images

# (output channels at width 1, stride of the depthwise convolution)
BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]


def convolution(inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
    """A convolution with batch norm and ReLU that keeps the size at stride 1."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class MobileNetV1(nn.Module):
    """A stem, thirteen depthwise separable blocks, a global average and a classifier."""

    def __init__(self, width: float = 0.25, classes: int = 2) -> None:
        super().__init__()
        channels = int(32 * width)
        layers = [convolution(3, channels, 3, 2)]
        for outputs, stride in BLOCKS:
            layers.append(convolution(channels, channels, 3, stride, groups=channels))
            layers.append(convolution(channels, int(outputs * width), 1, 1))
            channels = int(outputs * width)
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(x)).flatten(1))


def build() -> nn.Module:
    return MobileNetV1()


def samples() -> list[tuple[Tensor, ...]]:
    return images(9, 4, 3, 96, 96)
