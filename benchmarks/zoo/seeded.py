"""Weights and data out of a seed, shaped like what training and nature give."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tosaic.support.threads import one_thread

SEED = 2026


@one_thread()
def initialize(module: nn.Module, batches: list[tuple[Tensor, ...]]) -> nn.Module:
    """Seed all weights, then the statistics of the batch norms.

    A depthwise filter is its center tap plus half the usual randomness: filters of mean 0 alone would leave of deep
    stacks of them little but noise.
    """
    generator = torch.Generator().manual_seed(SEED)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            layer.weight.data.normal_(0.0, (2.0 / fan_in) ** 0.5, generator=generator)
            if isinstance(layer, nn.Conv2d) and layer.groups > 1:
                rows, columns = layer.kernel_size
                layer.weight.data *= 0.5
                layer.weight.data[:, :, rows // 2, columns // 2] += 1.0
            if layer.bias is not None:
                layer.bias.data.normal_(0.0, 0.05, generator=generator)
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.weight.data.uniform_(0.6, 1.4, generator=generator)
            layer.bias.data.normal_(0.0, 0.2, generator=generator)
        elif isinstance(layer, nn.LayerNorm):
            layer.weight.data.uniform_(0.6, 1.4, generator=generator)
            layer.bias.data.normal_(0.0, 0.1, generator=generator)
    _randomise_statistics(module.eval(), batches, generator)
    return module


def _randomise_statistics(module: nn.Module, batches: list[tuple[Tensor, ...]], generator: torch.Generator) -> None:
    """Statistics near the power of what each batch norm sees, so that deep activations neither die nor explode.

    The power is the layer's, not the channel's: to lift every faint channel of a random network is to lift noise.
    """

    def fit(norm: Any, arguments: tuple[Tensor, ...]) -> None:
        power = arguments[0].square().mean()
        norm.running_mean = 0.1 * power.sqrt() * torch.randn(norm.running_mean.shape, generator=generator)
        norm.running_var = power * torch.empty(norm.running_var.shape).uniform_(0.7, 1.4, generator=generator)

    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(fit) for norm in norms]
    with torch.no_grad():
        module(*(torch.cat(tensors) for tensors in zip(*batches, strict=True)))
    for hook in hooks:
        hook.remove()


@one_thread()
def images(smooth: int, noisy: int, channels: int, height: int, width: int) -> list[tuple[Tensor, ...]]:
    """Images of mean 0 and deviation 1, one a batch: `smooth` of blobs and texture, then `noisy` of white noise."""
    generator = torch.Generator().manual_seed(SEED + 1)
    total = torch.zeros(smooth, channels, height, width)
    for cells, weight in ((3, 1.0), (9, 0.5), (24, 0.2)):
        grid = torch.randn(smooth, channels, min(cells, height), min(cells, width), generator=generator)
        total += weight * functional.interpolate(grid, size=(height, width), mode="bilinear", align_corners=False)
    total += 0.05 * torch.randn(smooth, channels, height, width, generator=generator)
    total = (total - total.mean((1, 2, 3), keepdim=True)) / total.std((1, 2, 3), keepdim=True)
    noise = torch.randn(noisy, channels, height, width, generator=generator)
    return [(image[None],) for image in torch.cat([total, noise])]
