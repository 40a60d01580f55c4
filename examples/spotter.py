"""A keyword spotter: 49 frames of 10 features go through a GRU, whose last state tells one of 12 words.

Its weights are seeded, not trained: cycles, flash and arena are those of a trained network of this shape.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WORDS, FRAMES, FEATURES, STATE = 12, 49, 10, 64


class Spotter(nn.Module):
    """[1, 49, 10] features to [1, 12] scores."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(FEATURES, STATE, batch_first=True)
        self.words = nn.Linear(STATE, WORDS)

    def forward(self, features: Tensor) -> Tensor:
        states, _ = self.gru(features)
        return self.words(states[:, -1])


def net() -> tuple[nn.Module, tuple[Tensor], Tensor]:
    """The network, an example input, and 64 inputs to calibrate with."""
    torch.manual_seed(0)
    return Spotter().eval(), (torch.randn(1, FRAMES, FEATURES),), torch.randn(64, 1, FRAMES, FEATURES)
