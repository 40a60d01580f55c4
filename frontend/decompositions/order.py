"""What depends on the order of elements. An element's place is the number of those before it, which are counted."""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.sort.default)
def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, descending)


@decomposes(aten.sort.stable)
def _stable_sort(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, descending)


@decomposes(aten.argsort.default)
def _argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    return _ordered(x, dim, descending)[1]


@decomposes(aten.topk.default)
def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, _sorted: bool = True) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, largest, range(k))


@decomposes(aten.kthvalue.default)
def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = _ordered(x, dim, False, range(k - 1, k))
    return (values, indices) if keepdim or not x.ndim else (values.squeeze(dim), indices.squeeze(dim))


@decomposes(aten.median.default)
def _median(x: Tensor) -> Tensor:
    return _median_along(x.reshape(-1), 0)[0]


@decomposes(aten.median.dim)
def _median_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of two in the middle."""
    return _kthvalue(x, ((x.shape[dim] if x.ndim else 1) + 1) // 2, dim, keepdim)


def _ordered(x: Tensor, dim: int, descending: bool, places: range | None = None) -> tuple[Tensor, Tensor]:
    """The elements at `places` of an order, at all where None, and their indices; equal ones keep their order."""
    if not x.ndim:
        return x, torch.zeros((), dtype=torch.int64)
    rows = x.movedim(dim, -1)
    count = rows.shape[-1]
    at = torch.arange(count)
    one, other = rows.unsqueeze(-1), rows.unsqueeze(-2)
    before = other > one if descending else other < one
    earlier = (other == one) & (at < at.unsqueeze(-1))
    place = (before | earlier).sum(-1)
    wanted = at if places is None else torch.arange(places.start, places.stop)
    found = place.unsqueeze(-2) == wanted.unsqueeze(-1)
    indices = torch.where(found, at, 0).sum(-1)
    return torch.gather(rows, -1, indices).movedim(-1, dim), indices.movedim(-1, dim)
