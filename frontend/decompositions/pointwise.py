"""Functions of single elements."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten

_LINEAR = 15.0
"""From here on log(1 + exp(x)) is x in f32."""


@decomposes(aten.softplus.default)
def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(x)), without a step where f32 has none, so that one TABLE of chords holds it."""
    scaled = x * beta
    smooth = (torch.relu(scaled) + torch.log(1 + torch.exp(-scaled.abs()))) / beta
    return smooth if threshold >= _LINEAR else torch.where(scaled > threshold, x, smooth)


@decomposes(aten.prelu.default)
def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    slope = weight if weight.numel() == 1 else weight.reshape(-1, *(1,) * (x.ndim - 2))
    return torch.relu(x) + torch.clamp_max(x, 0.0) * slope


@decomposes(aten.full_like.default)
def _full_like(x: Tensor, number: float, *, dtype: torch.dtype | None = None, **_options: Any) -> Tensor:
    return torch.full(x.shape, number, dtype=dtype or x.dtype)


@decomposes(aten.clamp.Tensor)
def _clamp_tensor(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@decomposes(aten.lerp.Scalar)
def _lerp(x: Tensor, end: Tensor, weight: float) -> Tensor:
    return x * (1 - weight) + end * weight


@decomposes(aten.sign.default)
def _sign(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, torch.where(x < 0, -1.0, 0.0))


@decomposes(aten.round.default)
def _round(x: Tensor) -> Tensor:
    """Half to even."""
    below = torch.floor(x)
    rest = x - below
    odd = below - 2 * torch.floor(below * 0.5) > 0.5
    return torch.where(torch.logical_or(rest > 0.5, torch.logical_and(rest >= 0.5, odd)), below + 1.0, below)


@decomposes(aten.tan.default)
def _tan(x: Tensor) -> Tensor:
    return torch.sin(x) / torch.cos(x)


@decomposes(aten.sinh.default)
def _sinh(x: Tensor) -> Tensor:
    return (torch.exp(x) - torch.exp(-x)) * 0.5


@decomposes(aten.cosh.default)
def _cosh(x: Tensor) -> Tensor:
    return (torch.exp(x) + torch.exp(-x)) * 0.5


@decomposes(aten.expm1.default)
def _expm1(x: Tensor) -> Tensor:
    return torch.exp(x) - 1.0


@decomposes(aten.log1p.default)
def _log1p(x: Tensor) -> Tensor:
    return torch.log(x + 1.0)


@decomposes(aten.log2.default)
def _log2(x: Tensor) -> Tensor:
    return torch.log(x) * (1 / math.log(2))


@decomposes(aten.log10.default)
def _log10(x: Tensor) -> Tensor:
    return torch.log(x) * (1 / math.log(10))


@decomposes(aten.exp2.default)
def _exp2(x: Tensor) -> Tensor:
    return torch.exp(x * math.log(2))


@decomposes(aten.round.decimals)
def _round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    return torch.round(x * 10.0**decimals) / 10.0**decimals if decimals else torch.round(x)


@decomposes(aten.pow.Scalar)
def _power_of(base: float, exponent: Tensor) -> Tensor:
    return torch.exp(exponent * math.log(base)) if base > 0 else torch.pow(torch.tensor(float(base)), exponent)


@decomposes(aten.isnan.default)
def _isnan(x: Tensor) -> Tensor:
    return x != x


@decomposes(aten.isinf.default)
def _isinf(x: Tensor) -> Tensor:
    return x.abs() > torch.finfo(torch.float32).max


@decomposes(aten.fill.Scalar)
def _fill(x: Tensor, number: float) -> Tensor:
    return torch.full(x.shape, number, dtype=x.dtype)
