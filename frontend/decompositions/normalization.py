"""Normalizations and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.group_norm.default)
def _group_norm(
    x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, _cudnn: bool = True
) -> Tensor:
    """Layer norm over each group, which is quantized as one unit (Wu and He 2018, section 3.1)."""
    batch, channels = x.shape[:2]
    normal = F.layer_norm(x.reshape(batch, groups, -1), (x[0].numel() // groups,), eps=eps).reshape(x.shape)
    shape = (1, channels) + (1,) * (x.ndim - 2)
    if weight is not None:
        normal = normal * weight.reshape(shape)
    return normal if bias is None else normal + bias.reshape(shape)


@decomposes(aten.instance_norm.default)
def _instance_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None,
    use_input_stats: bool, _momentum: float, eps: float, _cudnn: bool,
) -> Tensor:  # fmt: skip
    if use_input_stats or mean is None or variance is None:
        return _group_norm(x, x.shape[1], weight, bias, eps)
    return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)


@decomposes(aten.log_softmax.int, aten._log_softmax.default)
def _log_softmax(x: Tensor, dim: int, _option: Any = None) -> Tensor:
    """x - max - log sum exp(x - max), of ops that are quantized each."""
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@decomposes(aten.var.correction)
def _var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    axes = list(range(x.ndim)) if dim is None else list(dim)
    count = math.prod(x.shape[axis] for axis in axes)
    centered = x - x.mean(axes, keepdim=True)
    freedom = count - (1 if correction is None else correction)
    return (centered * centered).mean(axes, keepdim=keepdim) * (count / freedom)


@decomposes(aten.std.correction)
def _std(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _var(x, dim, correction=correction, keepdim=keepdim).sqrt()


@decomposes(aten.linalg_vector_norm.default)
def _vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    axes = list(range(x.ndim)) if dim is None else list(dim)
    if order == 0:
        return torch.where(x != 0, 1.0, 0.0).sum(axes, keepdim)
    if order == 1:
        return x.abs().sum(axes, keepdim)
    if order == math.inf:
        return x.abs().amax(axes, keepdim)
    if order == 2:
        return (x * x).sum(axes, keepdim).sqrt()
    return x.abs().pow(order).sum(axes, keepdim).pow(1 / order)


@decomposes(aten.native_group_norm.default)
def _native_group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, _pixels: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean, scale = _statistics(x.reshape(n, groups, -1), [2], eps)
    return _group_norm(x, groups, weight, bias, eps), mean.reshape(n, groups), scale.reshape(n, groups)


@decomposes(aten._native_batch_norm_legit.no_stats)
def _batch_statistics_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, _training: bool, _momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Each channel by the mean and deviation that it has in the batch."""
    mean, scale = _statistics(x, [axis for axis in range(x.ndim) if axis != 1], eps)
    normal = (x - mean) * scale
    shape = (-1, *(1,) * (x.ndim - 2))
    normal = normal if weight is None else normal * weight.reshape(shape)
    normal = normal if bias is None else normal + bias.reshape(shape)
    return normal, mean.reshape(-1), scale.reshape(-1)


def _statistics(x: Tensor, axes: list[int], eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation."""
    mean = x.mean(axes, keepdim=True)
    centered = x - mean
    return mean, torch.rsqrt((centered * centered).mean(axes, keepdim=True) + eps)


@decomposes(aten.cdist.default, aten._cdist_forward.default)
def _cdist(x: Tensor, y: Tensor, order: float = 2, _mode: int | None = None) -> Tensor:
    return _vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), order, [-1])
