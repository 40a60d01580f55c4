"""Windows of volumes as those of images: the slices that one reads become channels, or a second pool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten
_Axes: TypeAlias = Callable[[Sequence[int], int], list[int]]


@decomposes(aten.conv3d.default)
def _conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), groups: int = 1,
) -> Tensor:  # fmt: skip
    """A convolution of images whose channels are those of all slices that a window reads."""
    (sd, *stride), (pd, *padding), (dd, *dilation) = map(_triple, (stride, padding, dilation))
    depth = weight.shape[2]
    x, single = _batched(x, 5)
    count = (x.shape[2] + 2 * pd - (depth - 1) * dd - 1) // sd + 1
    planes = _windows(F.pad(x, (0, 0, 0, 0, pd, pd)), depth, dd, sd, count)
    kernel = weight.reshape(weight.shape[0], -1, *weight.shape[3:])
    return _volume(F.conv2d(planes, kernel, bias, stride, padding, dilation, groups), count, single)


@decomposes(aten.conv3d.padding)
def _conv3d_padding(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] = (1,), padding: str = "valid",
    dilation: Sequence[int] = (1,), groups: int = 1,
) -> Tensor:  # fmt: skip
    if padding == "same":
        totals = [(size - 1) * step for size, step in zip(weight.shape[2:], _triple(dilation), strict=True)]
        x = F.pad(x, [side for total in reversed(totals) for side in (total // 2, total - total // 2)])
    return _conv3d(x, weight, bias, stride, (0,), dilation, groups)


@decomposes(aten.conv_transpose3d.input)
def _conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,), groups: int = 1, dilation: Sequence[int] = (1,),
) -> Tensor:  # fmt: skip
    """As `_conv3d`, of slices with zeros between, the last slice of a window first."""
    (sd, *stride), (pd, *padding), (od, *output_padding), (dd, *dilation) = map(
        _triple, (stride, padding, output_padding, dilation)
    )
    depth = weight.shape[2]
    x, single = _batched(x, 5)
    n, c, d, h, w = x.shape
    reach = (depth - 1) * dd
    count = (d - 1) * sd - 2 * pd + reach + od + 1
    spread = F.pad(x.reshape(n, c, d, 1, h, w), (0, 0, 0, 0, 0, sd - 1)).reshape(n, c, d * sd, h, w)
    spread = F.pad(spread, (0, 0, 0, 0, reach - pd, reach - pd + od - (sd - 1)))
    planes = _windows(spread, depth, dd, 1, count, backwards=True)
    kernel = weight.transpose(1, 2).reshape(-1, weight.shape[1], *weight.shape[3:])
    return _volume(
        F.conv_transpose2d(planes, kernel, bias, stride, padding, output_padding, groups, dilation), count, single
    )


@decomposes(aten.convolution.default)
def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    if transposed:
        layer: Callable[..., Any] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[weight.ndim - 3]
        return layer(x, weight, bias, stride, padding, output_padding, groups, dilation)
    layer = (F.conv1d, F.conv2d, F.conv3d)[weight.ndim - 3]
    return layer(x, weight, bias, stride, padding, dilation, groups)


@decomposes(aten.max_pool3d.default)
def _max_pool3d(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    def pool(image: Tensor, axes: _Axes) -> Tensor:
        window = axes(kernel, 1), axes(stride or kernel, 1), axes(padding, 0), axes(dilation, 1)
        return aten.max_pool2d.default(image, *window, ceil_mode)

    return _pooled(x, pool)


@decomposes(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def _max_pool_with_indices(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The index is the first place in the plane or volume, of those that a window reads, with the window's maximum."""
    pool = aten.max_pool2d.default if len(kernel) == 2 else _max_pool3d
    result = pool(x, kernel, stride, padding, dilation, ceil_mode)
    sizes, counts = x.shape[-len(kernel) :], result.shape[-len(kernel) :]
    count = math.prod(sizes)
    sides: list[int] = []
    taps: list[list[slice]] = []
    options = (list(one) * (len(kernel) // len(one)) for one in (stride or kernel, padding, dilation))
    for size, last, taken, step, pad, apart in zip(sizes, counts, kernel, *options, strict=True):
        reach = (last - 1) * step + 1
        sides = [int(pad), max(0, reach + (taken - 1) * apart - size - pad), *sides]
        taps.append([slice(tap * apart, tap * apart + reach, step) for tap in range(taken)])
    values, places = F.pad(x, sides), F.pad(torch.arange(count).reshape(sizes), sides, value=count)
    cuts: Iterable[Any] = itertools.product(*taps)
    found = [torch.where(values[(Ellipsis, *cut)] == result, places[cut], count) for cut in cuts]
    return result, torch.stack(found).amin(0)


@decomposes(aten.avg_pool3d.default)
def _avg_pool3d(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    def pool(image: Tensor, axes: _Axes) -> Tensor:
        window = axes(kernel, 1), axes(stride or kernel, 1), axes(padding, 0)
        return aten.avg_pool2d.default(image, *window, ceil_mode, count_include_pad, 1 if divisor_override else None)

    return _pooled(x, pool) / divisor_override if divisor_override else _pooled(x, pool)


@decomposes(aten._adaptive_avg_pool3d.default, aten.adaptive_avg_pool3d.default)
def _adaptive_avg_pool3d(x: Tensor, size: Sequence[int]) -> Tensor:
    return _pooled(x, lambda image, axes: aten.adaptive_avg_pool2d.default(image, axes(size, image.shape[-1])))


@decomposes(aten.adaptive_max_pool3d.default)
def _adaptive_max_pool3d(x: Tensor, size: Sequence[int]) -> tuple[Tensor, None]:
    return _pooled(x, lambda image, axes: aten.adaptive_max_pool2d.default(image, axes(size, image.shape[-1]))[0]), None


def _pooled(x: Tensor, pool: Callable[[Tensor, _Axes], Tensor]) -> Tensor:
    """A pool of each slice, then of its results along the depth: the window is a box.

    Args:
        pool: takes images, and what picks of three numbers those of the images' axes, or a neutral one.
    """
    x, single = _batched(x, 5)
    n, c, d = x.shape[:3]
    planes = pool(x.reshape(n, c * d, *x.shape[3:]), lambda values, _: _triple(values)[1:])
    h, w = planes.shape[2:]
    volume = pool(planes.reshape(n, c, d, h * w), lambda values, neutral: [_triple(values)[0], neutral])
    result = volume.reshape(n, c, -1, h, w)
    return result.squeeze(0) if single else result


def _windows(x: Tensor, depth: int, dilation: int, stride: int, count: int, backwards: bool = False) -> Tensor:
    """[N, C, D, H, W] to [N * count, C * depth, H, W]: each window's slices beside each other."""
    taps = [x[:, :, at : at + (count - 1) * stride + 1 : stride] for at in range(0, depth * dilation, dilation)]
    stacked = torch.stack(taps[::-1] if backwards else taps, 3)
    n, c, _, _, h, w = stacked.shape
    return stacked.permute(0, 2, 1, 3, 4, 5).reshape(n * count, c * depth, h, w)


def _volume(planes: Tensor, depth: int, single: bool) -> Tensor:
    """[N * depth, C, H, W] to [N, C, depth, H, W], or without N."""
    volume = planes.reshape(-1, depth, *planes.shape[1:]).transpose(1, 2)
    return volume.squeeze(0) if single else volume


def _batched(x: Tensor, rank: int) -> tuple[Tensor, bool]:
    return (x, False) if x.ndim == rank else (x.unsqueeze(0), True)


def _triple(values: Sequence[int]) -> list[int]:
    return list(values) * (3 // len(values))
