"""Images sampled at places that only the run knows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch._decomp.decompositions import grid_sampler_2d

from tosaic.frontend.decompositions.registry import decomposes
from tosaic.support.errors import ModelError

aten = torch.ops.aten

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


class _Neighbor(NamedTuple):
    """What a sample reads along an axis: a pixel, whether it lies inside, and what it counts for."""

    pixel: Tensor
    inside: Tensor
    weight: Tensor | float


@decomposes(aten.grid_sampler.default)
def _grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """Indices are integers from the start: of a floor that is quantized, 2.99 would be the neighbor of 3."""
    if x.ndim != 4:
        raise ModelError("grid_sample of volumes cannot be compiled", hint="sample images, of four dimensions")
    if mode not in (_BILINEAR, _NEAREST):
        return grid_sampler_2d(x, grid, mode, padding, align_corners)
    batch, channels, height, width = x.shape
    pixels = x.movedim(1, -1).reshape(-1, channels)
    first = (torch.arange(batch) * (height * width)).reshape(-1, 1, 1)
    down, along = (
        _neighbors(_place(grid[..., axis], size, padding, align_corners), size, mode)
        for axis, size in ((1, height), (0, width))
    )
    total = None
    for row in down:
        for column in along:
            at = first + row.pixel * width + column.pixel
            read = pixels.index_select(0, at.reshape(-1)).reshape(*at.shape, channels)
            weight = torch.where(row.inside & column.inside, row.weight * column.weight, 0.0)
            part = read * weight.unsqueeze(-1)
            total = part if total is None else total + part
    assert total is not None
    return total.movedim(-1, 1)


def _place(x: Tensor, size: int, padding: int, align_corners: bool) -> Tensor:
    """Where -1 to 1 lie among pixels; what is a pixel and more outside counts like what is one."""
    place = x * ((size - 1 if align_corners else size) / 2) + (size - 1) / 2
    if padding == _ZEROS:
        return place.clamp(-1, size)
    if padding != _BORDER:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(place)
        beyond = (place - low).abs()
        beyond = beyond - (beyond / (2 * span)).floor() * (2 * span)
        place = torch.minimum(beyond, 2 * span - beyond) + low
    return place.clamp(0, size - 1)


def _neighbors(place: Tensor, size: int, mode: int) -> list[_Neighbor]:
    """The pixels that a sample reads along an axis."""
    if mode == _NEAREST:
        found: list[tuple[Tensor, Tensor | float]] = [((place.round() + 1.5).to(torch.int64) - 1, 1.0)]
    else:
        index = (place + 1).to(torch.int64) - 1
        behind = place - index.to(place.dtype)
        found = [(index, 1 - behind), (index + 1, behind)]
    return [_Neighbor(i.clamp(0, size - 1), (i >= 0) & (i < size), weight) for i, weight in found]
