"""Weights and data out of a seed, shaped like what training and nature give."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

SEED = 2026


def initialise(module: nn.Module, batches: list[tuple[Tensor, ...]]) -> nn.Module:
    """Seed all weights; batch norms take the statistics of the data, then a random disturbance.

    Statistics that fit the data keep activations of deep models alive, as trained ones would.
    """
    generator = torch.Generator().manual_seed(SEED)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            layer.weight.data.normal_(0.0, (2.0 / fan_in) ** 0.5, generator=generator)
            if layer.bias is not None:
                layer.bias.data.normal_(0.0, 0.05, generator=generator)
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.weight.data.uniform_(0.6, 1.4, generator=generator)
            layer.bias.data.normal_(0.0, 0.3, generator=generator)
        elif isinstance(layer, nn.LayerNorm):
            layer.weight.data.uniform_(0.6, 1.4, generator=generator)
            layer.bias.data.normal_(0.0, 0.1, generator=generator)
    _fit_statistics(module, batches)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.running_mean += 0.1 * layer.running_var.sqrt() * torch.randn(layer.num_features, generator=generator)
            layer.running_var *= torch.empty(layer.num_features).uniform_(0.8, 1.25, generator=generator)
    return module.eval()


def _fit_statistics(module: nn.Module, batches: list[tuple[Tensor, ...]]) -> None:
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    if not norms:
        return
    for layer in norms:
        layer.momentum = None
    joined = [torch.cat(tensors) for tensors in zip(*batches, strict=True)]
    module.train()
    with torch.no_grad():
        module(*joined)


def smooth(count: int, channels: int, height: int, width: int) -> list[tuple[Tensor, ...]]:
    """Images of large blobs, finer texture and a little noise, standardised to mean 0 and deviation 1."""
    generator = torch.Generator().manual_seed(SEED + 1)
    total = torch.zeros(count, channels, height, width)
    for cells, weight in ((3, 1.0), (9, 0.5), (24, 0.2)):
        grid = torch.randn(count, channels, min(cells, height), min(cells, width), generator=generator)
        total += weight * functional.interpolate(grid, size=(height, width), mode="bilinear", align_corners=False)
    total += 0.05 * torch.randn(count, channels, height, width, generator=generator)
    total = (total - total.mean((1, 2, 3), keepdim=True)) / total.std((1, 2, 3), keepdim=True)
    return [(image[None],) for image in total]
