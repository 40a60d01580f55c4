"""The fully connected autoencoder of MLPerf Tiny's anomaly detection (Koizumi et al. 2020; Banbury et al. 2021)."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from tosaic.zoo.seeded import images

WIDTHS = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)


class Autoencoder(nn.Module):
    """Nine layers with batch norm and ReLU through a bottleneck of 8, and a linear one back to the input's size."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(WIDTHS):
            layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTHS[-1], WIDTHS[0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def build() -> nn.Module:
    return Autoencoder()


def samples() -> list[tuple[Tensor, ...]]:
    """Five frames of 128 mel bands each."""
    return [(image.reshape(1, 640),) for (image,) in images(11, 6, 1, 5, 128)]
