"""Sums and products along an axis."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.cumsum.default)
def _cumsum(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """A product with a triangle of ones."""
    ones = torch.ones(x.shape[dim], x.shape[dim], dtype=x.dtype).tril()
    return F.linear(x.transpose(dim, -1), ones).transpose(dim, -1)
