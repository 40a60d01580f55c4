"""Normalization."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op
from tosaic.support.errors import ModelError


@onnx_op("BatchNormalization")
def _batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor:
    if training_mode:
        raise ModelError("it is in training mode", hint="export the model in evaluation mode")
    return F.batch_norm(x, mean, variance, scale, bias, eps=epsilon)


@onnx_op("InstanceNormalization")
def _instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@onnx_op("LayerNormalization")
def _layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    results: int,
) -> Tensor | tuple[Tensor, ...]:
    """With further results, the mean and the inverse of the deviation."""
    shape = x.shape[axis % x.ndim :]
    bias = None if bias is None else bias.expand(shape)
    normed = F.layer_norm(x, shape, scale.expand(shape), bias, epsilon)
    if results == 1:
        return normed
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axes, True)
    return normed, mean, torch.rsqrt(((x - mean) ** 2).mean(axes, True) + epsilon)


@onnx_op("RMSNormalization")
def _rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x * torch.rsqrt((x * x).mean(axes, True) + epsilon) * scale


@onnx_op("GroupNormalization", since=21)
def _group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@onnx_op("GroupNormalization")
def _group_norm_of_groups(x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5) -> Tensor:
    """Scale and bias are those of groups."""
    size = x.shape[1] // num_groups
    return F.group_norm(x, num_groups, scale.repeat_interleave(size), bias.repeat_interleave(size), epsilon)


@onnx_op("LRN")
def _lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    before = (size - 1) // 2
    squares = F.pad(x * x, [0, 0] * (x.ndim - 2) + [before, size - 1 - before])
    total = squares.narrow(1, 0, x.shape[1])
    for shift in range(1, size):
        total = total + squares.narrow(1, shift, x.shape[1])
    return x * torch.exp(-beta * torch.log(bias + alpha / size * total))
