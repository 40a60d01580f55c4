"""The models that bugs, damage and kills are tried on, in a file that the command line can load by itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Planted(nn.Module):
    """Convolutions, sums, differences, pools, a table, a rotation: f32[1, 3, 12, 12] -> f32[1, 5], f32[1, 8]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.first(x))
        y = self.second(x)
        x = (y - x) + torch.sigmoid(y)
        x = nn.functional.max_pool2d(x, 2).mean((2, 3))
        return self.classifier(x), x * 2 - x.roll(1, 1)


def planted() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    """The factory."""
    batches = torch.randn(8, 1, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    return Planted().eval(), (batches[0],), [(batch,) for batch in batches]


def small() -> tuple[nn.Module, tuple[Tensor]]:
    """The factory of a model of few kernels: f32[1, 3, 6, 6] -> f32[1, 8, 6, 6]."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    return net.eval(), (torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(1)),)


class Read(nn.Module):
    """A convolution, a table, a mean, a classifier and a rotation: f32[1, 2, 6, 6] -> f32[1, 3], f32[1, 4]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.classifier = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.sigmoid(self.first(x)).mean((2, 3))
        return self.classifier(x), x.roll(1, 1)


def read() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    """The factory of a model whose files are small and yet hold each kind of record."""
    batches = torch.randn(4, 1, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    return Read().eval(), (batches[0],), [(batch,) for batch in batches]
