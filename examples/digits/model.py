"""A digit reader for a seven-segment display: scanned 8x8 digits in, logits and the lit segments out.

The bilinear upsampling in front and the table look-up behind are ops that the Ethos-U55 refuses, so on corstone-300
both processors work.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

WEIGHTS = Path(__file__).with_name("weights.npz")
HELD_BACK = 400  # the last scans of the set, which the training never sees

# Segments a to g of a seven-segment display, per digit.
SEGMENTS = [
    "1111110",
    "0110000",
    "1101101",
    "1111001",
    "0110011",
    "1011011",
    "1011111",
    "1110000",
    "1111111",
    "1111011",
]


class DigitReader(nn.Module):
    """f32[1, 1, 8, 8] in 0..1 -> logits f32[1, 10], segments f32[1, 7] (1 is lit)."""

    def __init__(self) -> None:
        super().__init__()
        self.upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.features = nn.Sequential(
            *self._block(1, 16, stride=1), *self._block(16, 32, stride=2), *self._separable(32, 48, stride=2)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(48, 10)
        segments = torch.tensor([[float(s) for s in digit] for digit in SEGMENTS])
        self.register_buffer("segments", segments)

    @staticmethod
    def _block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    @staticmethod
    def _separable(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        depthwise = nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False)
        pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        return [depthwise, nn.BatchNorm2d(inputs), nn.ReLU(), pointwise, nn.BatchNorm2d(outputs), nn.ReLU()]

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.pool(self.features(self.upsample(image)))
        logits = self.classifier(features.flatten(1))
        return logits, torch.index_select(self.get_buffer("segments"), 0, logits.argmax(1))


def scans() -> tuple[torch.Tensor, torch.Tensor]:
    """The 1797 scanned digits of scikit-learn: images f32[N, 1, 8, 8] in 0..1 and labels i64[N]."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)


def held_back() -> torch.Tensor:
    """The images that the training never sees, f32[N, 1, 1, 8, 8]."""
    images, _ = scans()
    return images[-HELD_BACK:, None]


def held_back_labels() -> torch.Tensor:
    """Their digits, i64[N]."""
    _, labels = scans()
    return labels[-HELD_BACK:]


def digits() -> tuple[nn.Module, tuple[torch.Tensor], list[tuple[torch.Tensor]]]:
    """The trained module, an example input, and 64 training scans to calibrate with."""
    module = DigitReader()
    with np.load(WEIGHTS) as weights:
        module.load_state_dict({name: torch.tensor(weights[name]) for name in weights.files}, strict=False)
    images, _ = scans()
    return module.eval(), (images[:1],), [(image[None],) for image in images[:64]]
