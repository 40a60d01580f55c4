"""MobileNetV3-small 1.0 for 224x224 images (Howard et al. 2019, table 2)."""

from __future__ import annotations

from torch import Tensor, nn

from tosaic.zoo.seeded import images

# (kernel, hidden channels, output channels, squeeze and excite, hardswish, stride)
BLOCKS = [
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
]


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: nn.Module | None = None
) -> nn.Sequential:
    """A convolution with batch norm and an activation that keeps the size at stride 1."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation] if activation else []))


class SqueezeExcite(nn.Module):
    """Scale channels by a gate computed from their averages."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = max(8, (channels // 4 + 4) // 8 * 8)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.relu = nn.ReLU()
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.relu(self.reduce(self.pool(x)))))


class Bottleneck(nn.Module):
    """Expand, filter by depth, excite, project; a shortcut where the shape stays."""

    def __init__(
        self, inputs: int, kernel: int, hidden: int, outputs: int, excite: bool, hardswish: bool, stride: int
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if hardswish else nn.ReLU
        layers: list[nn.Module] = []
        if hidden != inputs:
            layers.append(convolution(inputs, hidden, 1, activation=activation()))
        layers.append(convolution(hidden, hidden, kernel, stride, groups=hidden, activation=activation()))
        if excite:
            layers.append(SqueezeExcite(hidden))
        layers.append(convolution(hidden, outputs, 1))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.residual else y


class MobileNetV3Small(nn.Module):
    """A stem, eleven bottlenecks, a head of 576 channels, a global average and a classifier of two layers."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolution(3, 16, 3, 2, activation=nn.Hardswish())]
        channels = 16
        for kernel, hidden, outputs, excite, hardswish, stride in BLOCKS:
            layers.append(Bottleneck(channels, kernel, hidden, outputs, excite, hardswish, stride))
            channels = outputs
        layers.append(convolution(channels, 576, 1, activation=nn.Hardswish()))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(x)).flatten(1))


def build() -> nn.Module:
    return MobileNetV3Small()


def samples() -> list[tuple[Tensor, ...]]:
    return images(6, 3, 3, 224, 224)
