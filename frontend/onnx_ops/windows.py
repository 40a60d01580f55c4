"""Convolutions, pools, and images in other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op
from tosaic.support.errors import ModelError

_CONVOLUTIONS: list[Callable[..., Tensor]] = [F.conv1d, F.conv2d, F.conv3d]
_TRANSPOSED: list[Callable[..., Tensor]] = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]
_MAX_POOLS: list[Callable[..., Any]] = [F.max_pool1d, F.max_pool2d, F.max_pool3d]
_AVERAGES: list[Callable[..., Tensor]] = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d]


class _Windows:
    """How windows go over an image.

    Args:
        image: the sizes of its axes.
        kernel: those of a window.
    """

    def __init__(
        self,
        image: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int] | None,
        dilations: Sequence[int] | None,
        pads: Sequence[int] | None,
        auto_pad: str,
    ) -> None:
        rank = len(kernel)
        if rank > len(_CONVOLUTIONS):
            raise ModelError(f"its windows have {rank} axes", why="three are the most")
        self.image, self.kernel = list(image), list(kernel)
        self.strides, self.dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
        self.before = list(pads[:rank]) if pads else [0] * rank
        self.behind = list(pads[rank:]) if pads else [0] * rank
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            for axis, size in enumerate(image):
                step = self.strides[axis]
                missing = max(0, (math.ceil(size / step) - 1) * step + self._span(axis) - size)
                less, more = missing // 2, missing - missing // 2
                self.before[axis], self.behind[axis] = (less, more) if auto_pad == "SAME_UPPER" else (more, less)

    def _span(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def grow(self) -> list[int]:
        """Let the last windows of each axis exceed the padded image, as `ceil_mode` asks; by how much each does."""
        grown = []
        for axis, size in enumerate(self.image):
            room = size + self.before[axis] + self.behind[axis] - self._span(axis)
            count = math.ceil(room / self.strides[axis]) + 1
            if (count - 1) * self.strides[axis] >= size + self.before[axis]:
                count -= 1  # a window that begins behind the image
            grown.append(max(0, (count - 1) * self.strides[axis] - room))
            self.behind[axis] += grown[-1]
        return grown

    def pads_for(self, x: Tensor, value: float = 0.0) -> tuple[Tensor, list[int]]:
        """The image with what the op cannot pad itself, and what it is to pad: the same on both sides."""
        if self.before == self.behind:
            return x, self.before
        return self.padded(x, value), [0] * len(self.kernel)

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        """The image padded."""
        widths = [width for pair in zip(self.before[::-1], self.behind[::-1], strict=True) for width in pair]
        return F.pad(x, widths, value=value) if any(widths) else x

    def extended(self, x: Tensor) -> Tensor:
        """The image padded with copies of its border."""
        for axis, (before, behind) in enumerate(zip(self.before, self.behind, strict=True), 2):
            parts = [x.narrow(axis, 0, 1)] * before + [x] + [x.narrow(axis, x.shape[axis] - 1, 1)] * behind
            x = torch.cat(parts, axis)
        return x

    def sums(self, x: Tensor) -> Tensor:
        """What each window over a padded image sums up to."""
        ones = torch.ones(x.shape[1], 1, *self.kernel)
        return _CONVOLUTIONS[len(self.kernel) - 1](
            x, ones, stride=self.strides, dilation=self.dilations, groups=x.shape[1]
        )


@onnx_op("Conv")
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    windows = _Windows(x.shape[2:], weight.shape[2:], strides, dilations, pads, auto_pad)
    x, padding = windows.pads_for(x)
    convolution = _CONVOLUTIONS[weight.ndim - 3]
    return convolution(x, weight, bias, windows.strides, padding, windows.dilations, group)


@onnx_op("ConvTranspose")
def _conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """All that the kernel reaches, of which the pads cut off."""
    windows = _Windows(x.shape[2:], weight.shape[2:], strides, dilations, pads, "NOTSET")
    extra = list(output_padding or [0] * len(windows.kernel))
    reached = [
        (size - 1) * windows.strides[axis] + windows._span(axis) + extra[axis] for axis, size in enumerate(x.shape[2:])
    ]
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = [size * step for size, step in zip(x.shape[2:], windows.strides, strict=True)]
    if output_shape is not None:
        for axis, size in enumerate(output_shape[-len(windows.kernel) :]):
            total = reached[axis] - size
            less, more = total // 2, total - total // 2
            lower = auto_pad != "SAME_UPPER"
            windows.before[axis], windows.behind[axis] = (more, less) if lower else (less, more)
    same = windows.before == windows.behind and min(windows.before) >= 0
    padding = windows.before if same else [0] * len(windows.kernel)
    whole = _TRANSPOSED[weight.ndim - 3](
        x, weight, bias, windows.strides, padding, [0] * len(extra) if not same else extra, group, windows.dilations
    )
    if same:
        return whole
    widths = [
        width
        for axis in reversed(range(len(extra)))
        for width in (-windows.before[axis], extra[axis] - windows.behind[axis])
    ]
    return F.pad(whole, widths)


@onnx_op("MaxPool")
def _max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    results: int,
) -> Tensor | tuple[Tensor, Tensor]:
    windows = _Windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    if ceil_mode:
        windows.grow()
    allowed = all(2 * pad <= size for pad, size in zip(windows.before, windows.kernel, strict=True))
    if windows.before == windows.behind and allowed:
        padding = windows.before
    elif set(windows.dilations) == {1}:  # a window over a copy of the border holds the border too
        x, padding = windows.extended(x), [0] * len(windows.kernel)
    else:
        x, padding = windows.padded(x, -math.inf), [0] * len(windows.kernel)
    geometry = (windows.kernel, windows.strides, padding, windows.dilations)
    pool = _MAX_POOLS[len(windows.kernel) - 1]
    if results == 1:
        return pool(x, *geometry)
    if any(windows.before + windows.behind) and not any(padding):
        raise ModelError("the places of maxima in an image padded on one side have no lowering")
    values, places = pool(x, *geometry, return_indices=True)
    size = math.prod(x.shape[2:])
    if storage_order and len(windows.kernel) == 2:
        height, width = x.shape[2:]
        places = places % width * height + torch.div(places, width, rounding_mode="floor")
    planes = torch.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(windows.kernel))
    return values, places + planes * size


@onnx_op("AveragePool")
def average_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    windows = _Windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    grown = windows.grow() if ceil_mode else [0] * len(windows.kernel)
    same = windows.before == windows.behind and not any(grown) and set(windows.dilations) == {1}
    if same and all(2 * pad <= size for pad, size in zip(windows.before, windows.kernel, strict=True)):
        average = _AVERAGES[len(windows.kernel) - 1]
        return average(x, windows.kernel, windows.strides, windows.before, False, bool(count_include_pad))
    ones = torch.ones(1, 1, *x.shape[2:])
    if count_include_pad:
        behind = [more - less for more, less in zip(windows.behind, grown, strict=True)]
        sides = zip(windows.before[::-1], behind[::-1], strict=True)
        ones = F.pad(ones, [width for pair in sides for width in pair], value=1.0)
        ones = F.pad(ones, [width for less in grown[::-1] for width in (0, less)])
    else:
        ones = windows.padded(ones)
    return windows.sums(windows.padded(x)) * (1 / windows.sums(ones))


@onnx_op("LpPool")
def _lp_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    windows = _Windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    if ceil_mode:
        windows.grow()
    return _root(windows.sums(windows.padded(_power(x, p))), p)


def _power(x: Tensor, p: int) -> Tensor:
    return x * x if p == 2 else x.abs() ** p


def _root(x: Tensor, p: int) -> Tensor:
    return torch.sqrt(x) if p == 2 else x ** (1 / p)


@onnx_op("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1) if x.ndim == 4 else x.mean(tuple(range(2, x.ndim)), True)


@onnx_op("GlobalMaxPool")
def _global_max_pool(x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.ndim)), True)


@onnx_op("GlobalLpPool")
def _global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return _root(_power(x, p).sum(tuple(range(2, x.ndim)), True), p)


@onnx_op("GridSample")
def _grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@onnx_op("AffineGrid", lists="size")
def _affine_grid(theta: Tensor, size: Sequence[int], *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, list(size), bool(align_corners))
