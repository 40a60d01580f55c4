"""A net of which a part may stay in floats."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Mixed(nn.Module):
    """Two convolutions, a sigmoid, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return torch.softmax(self.last(torch.sigmoid(x).mean((2, 3))), -1)


def mixed() -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    return Mixed().eval(), (torch.randn(1, 3, 8, 8),)
