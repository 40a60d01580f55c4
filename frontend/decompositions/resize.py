"""Resizing along each axis as a product with a matrix, for what TOSA's RESIZE does not know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten
_TAP = -0.75  # the slope of torch's cubic kernel at 1
_SMOOTH_TAP = -0.5  # of the antialiased one


_Matrix: TypeAlias = Callable[[int, int, bool, float | None], Tensor]
_Factors: TypeAlias = Sequence[float] | float | None


def _resizes(*targets: OpOverload, matrix: _Matrix) -> None:
    """Register ops that take a size or one factor for each axis, in a list or one by one.

    Args:
        matrix: of the sizes before and after, `align_corners` and the user's factor: [after, before].
    """

    def resized(x: Tensor, size: Sequence[int] | None, align_corners: bool, *factors: _Factors) -> Tensor:
        """[N, C, ...] with its further axes resized, the last one first."""
        axes = x.ndim - 2
        given = [one for each in factors for one in (each if isinstance(each, Sequence) else [each])]
        given = given if len(given) == axes else [None] * axes
        for axis in reversed(range(axes)):
            before, factor = x.shape[axis + 2], given[axis]
            after = size[axis] if size is not None else int(before * (factor or 1))
            x = F.linear(x.movedim(axis + 2, -1), matrix(before, after, align_corners, factor)).movedim(-1, axis + 2)
        return x

    decomposes(*targets)(resized)


def _step(before: int, after: int, align_corners: bool, factor: float | None) -> float:
    """How far apart the places are that two neighbors of the result come from."""
    if align_corners:
        return (before - 1) / (after - 1) if after > 1 else 0.0
    return 1 / factor if factor else before / after


def _places(before: int, after: int, align_corners: bool, factor: float | None) -> Tensor:
    """Where each element comes from, [after, 1]."""
    step, number = _step(before, after, align_corners, factor), torch.arange(after).unsqueeze(1)
    return number * step if align_corners else (number + 0.5) * step - 0.5


def _between(before: int, after: int, align_corners: bool, factor: float | None) -> Tensor:
    """From the two nearest; what lies outside is the border."""
    places = _places(before, after, align_corners, factor).clamp(0, before - 1)
    return (1 - (places - torch.arange(before)).abs()).clamp_min(0)


def _cubic(before: int, after: int, align_corners: bool, factor: float | None) -> Tensor:
    """From the four nearest (Keys 1981, eq. 15); what lies outside is the border."""
    places = _places(before, after, align_corners, factor)
    first = torch.floor(places)
    taps = []
    for tap in range(-1, 3):
        read = (first + tap).clamp(0, before - 1) == torch.arange(before)
        taps.append(torch.where(read, _kernel((places - first - tap).abs(), _TAP), 0.0))
    return torch.stack(taps).sum(0)


def _smooth(reach: int, kernel: Callable[[Tensor], Tensor]) -> _Matrix:
    """From a window as wide as what an element shrinks from, weights of a sum of 1.

    Args:
        reach: half of the window where nothing shrinks.
        kernel: a weight by its distance in such windows.
    """

    def matrix(before: int, after: int, align_corners: bool, factor: float | None) -> Tensor:
        step = _step(before, after, align_corners, factor)
        wide = max(step, 1.0)
        centers = (torch.arange(after).unsqueeze(1) + 0.5) * step
        number = torch.arange(before)
        low = torch.floor(centers - reach * wide + 0.5)
        high = torch.floor(centers + reach * wide + 0.5)
        weights = kernel((((number + 0.5) - centers) / wide).abs().clamp_max(reach))
        weights = torch.where((number >= low) & (number < high), weights, 0.0)
        return weights / weights.sum(1, keepdim=True)

    return matrix


def _kernel(t: Tensor, a: float) -> Tensor:
    """Keys' cubic convolution kernel at a distance of up to 2."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return torch.where(t <= 1, near, far)


_resizes(
    aten.upsample_linear1d.vec, aten.upsample_linear1d.default, aten.upsample_trilinear3d.vec,
    aten.upsample_trilinear3d.default, matrix=_between,
)  # fmt: skip
_resizes(aten.upsample_bicubic2d.vec, aten.upsample_bicubic2d.default, matrix=_cubic)
_resizes(aten._upsample_bilinear2d_aa.vec, aten._upsample_bilinear2d_aa.default, matrix=_smooth(1, lambda t: 1 - t))
_resizes(
    aten._upsample_bicubic2d_aa.vec, aten._upsample_bicubic2d_aa.default,
    matrix=_smooth(2, lambda t: _kernel(t, _SMOOTH_TAP)),
)  # fmt: skip
