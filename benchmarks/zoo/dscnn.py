"""DS-CNN for keyword spotting, MLPerf Tiny's 49x10 model (Zhang et al. 2017; Banbury et al. 2021)."""

from __future__ import annotations

from torch import Tensor, nn

from tosaic.zoo.seeded import images


class Separable(nn.Sequential):
    """A 3x3 depthwise and a 1x1 pointwise convolution, each with batch norm and ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.Conv2d(channels, channels, 3, 1, 1, groups=channels, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        )


class DSCNN(nn.Module):
    """A 10x4 convolution of stride 2, four separable blocks, a global average and a classifier."""

    def __init__(self, channels: int = 64, classes: int = 12) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, channels, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(channels), nn.ReLU(), nn.Dropout(0.2)
        )
        self.blocks = nn.Sequential(*(Separable(channels) for _ in range(4)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.blocks(self.stem(x))).flatten(1))


def build() -> nn.Module:
    return DSCNN()


def samples() -> list[tuple[Tensor, ...]]:
    return images(9, 4, 1, 49, 10)
