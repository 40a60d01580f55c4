"""What moves elements to places that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.roll.default)
def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not x.ndim:
        return x
    if not dims:
        return _roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        at = -shift % size
        x = torch.cat([x.narrow(dim, at, size - at), x.narrow(dim, 0, at)], dim) if at else x
    return x


@decomposes(aten.slice_scatter.default)
def _slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """The rows before, the new ones, and the rows behind; with a step, each new row before the old ones it skips to."""
    first, last, step = slice(start, end, step).indices(x.shape[dim])
    rows = [source.narrow(dim, (at - first) // step, 1) if at in range(first, last, step) else x.narrow(dim, at, 1)
            for at in range(first, last)]  # fmt: skip
    parts = [x.narrow(dim, 0, first), *([source] if step == 1 else rows), x.narrow(dim, last, x.shape[dim] - last)]
    return torch.cat([part for part in parts if part.shape[dim]], dim)


@decomposes(aten.pixel_shuffle.default)
def _pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """Channels last, as two transpositions of few axes: the channels within a pixel, then the rows of each line."""
    if x.ndim == 3:
        return _pixel_shuffle(x[None], factor)[0]
    n, c, h, w = x.shape
    channels, square = c // factor**2, factor**2
    pixels = x.permute(0, 2, 3, 1).reshape(n * h * w, channels, square).transpose(1, 2)
    lines = pixels.reshape(n * h, w, factor, factor * channels).transpose(1, 2)
    return lines.reshape(n, h * factor, w * factor, channels).permute(0, 3, 1, 2)


@decomposes(aten.pixel_unshuffle.default)
def _pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    if x.ndim == 3:
        return _pixel_unshuffle(x[None], factor)[0]
    n, c, h, w = x.shape[0], x.shape[1], x.shape[2] // factor, x.shape[3] // factor
    lines = x.permute(0, 2, 3, 1).reshape(n * h, factor, w, factor * c).transpose(1, 2)
    pixels = lines.reshape(n * h * w, factor**2, c).transpose(1, 2)
    return pixels.reshape(n, h, w, c * factor**2).permute(0, 3, 1, 2)


@decomposes(aten.channel_shuffle.default)
def _channel_shuffle(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(n * h * w, groups, c // groups).transpose(1, 2)
    return pixels.reshape(n, h, w, c).permute(0, 3, 1, 2)
