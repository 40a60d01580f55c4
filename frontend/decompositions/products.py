"""Sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.cumsum.default)
def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """A product with a triangle of ones."""
    if not x.ndim:
        return x.to(dtype or x.dtype)
    if not x.is_floating_point():
        return _scan(x.to(dtype or torch.int64), dim, torch.add)
    ones = torch.ones(x.shape[dim], x.shape[dim], dtype=x.dtype).tril()
    return F.linear(x.transpose(dim, -1), ones).transpose(dim, -1)


@decomposes(aten.cumprod.default)
def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return _scan(x if dtype is None else x.to(dtype), dim, torch.mul)


@decomposes(aten.prod.default)
def _prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _prod_along(x.reshape(-1), 0, dtype=dtype)


@decomposes(aten.prod.dim_int)
def _prod_along(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """The product of both halves, in as many steps as a number of that size has bits."""
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.int64))
    if not x.ndim:
        return x
    while (count := x.shape[dim]) > 1:
        half = count // 2
        product = x.narrow(dim, 0, half) * x.narrow(dim, half, half)
        x = torch.cat([product, x.narrow(dim, 2 * half, 1)], dim) if count % 2 else product
    return x if keepdim else x.squeeze(dim)


@decomposes(aten.bilinear.default)
def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The matrix of each output times y, in one layer; the products of the results with x, added."""
    outputs, *inputs = weight.shape
    found = F.linear(y, weight.reshape(outputs * inputs[0], inputs[1])).reshape(*y.shape[:-1], outputs, inputs[0])
    result = (found * x.unsqueeze(-2)).sum(-1)
    return result if bias is None else result + bias


def _scan(x: Tensor, dim: int, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Each element joined with all before it: with one before it, then two, then four (Hillis and Steele 1986)."""
    reach = 1
    while x.ndim and reach < (count := x.shape[dim]):
        joined = join(x.narrow(dim, reach, count - reach), x.narrow(dim, 0, count - reach))
        x = torch.cat([x.narrow(dim, 0, reach), joined], dim)
        reach *= 2
    return x
