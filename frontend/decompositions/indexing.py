"""Reads and writes at indices. A write of many rows is a read: for each place, of the last element written to it or of
its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes
from tosaic.frontend.rows import MOST_ROWS, WRITE_ROWS
from tosaic.support.errors import ModelError

aten = torch.ops.aten


@decomposes(aten.copy.default)
def _copy(x: Tensor, source: Tensor, _non_blocking: bool = False) -> Tensor:
    return source.to(x.dtype).expand(x.shape)


@decomposes(aten.as_strided.default)
def _as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    if not x.is_contiguous() or x.storage_offset():
        raise ModelError("as_strided of a view cannot be compiled", why="it reads what the view is of, not the view")
    last = (offset or 0) + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if last >= x.numel():
        raise ModelError(
            "as_strided beyond its tensor cannot be compiled", why=f"it reads element {last} of {x.numel()}"
        )
    at = torch.full((), offset or 0)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        at = at + (torch.arange(count) * step).reshape(-1, *(1,) * (len(size) - 1 - axis))
    return x.reshape(-1).index_select(0, at.reshape(-1)).reshape(size)


@decomposes(aten.diagonal.default)
def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    plane = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = plane.shape[-2:]
    count = min(rows - max(0, -offset), columns - max(0, offset))
    at = torch.arange(count) * (columns + 1) + max(0, -offset) * columns + max(0, offset)
    return plane.reshape(*plane.shape[:-2], rows * columns).index_select(-1, at)


@decomposes(aten.unfold.default)
def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if not x.ndim:
        return x.reshape(1).narrow(0, 0, size)
    at = (torch.arange((x.shape[dim] - size) // step + 1) * step).unsqueeze(-1) + torch.arange(size)
    windows = x.index_select(dim, at.reshape(-1)).unflatten(dim, at.shape)
    return windows.movedim(dim % x.ndim + 1, -1)


@decomposes(aten.scatter.src)
def _scatter(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    if not x.ndim:
        return source.reshape(-1)[0] if index.numel() else x
    if not index.ndim:
        index = index.reshape(1)
    inside = tuple(slice(size) for size in index.shape)
    at = _positions(x.shape, dim, index)
    given = source.reshape(index.shape) if source.ndim == 0 else source[inside]
    return _written(x.reshape(-1), 0, at.reshape(-1), given.reshape(-1)).reshape(x.shape)


@decomposes(aten.scatter.value)
def _scatter_value(x: Tensor, dim: int, index: Tensor, number: float) -> Tensor:
    return _scatter(x, dim, index, torch.full(index.shape or (1,), number, dtype=x.dtype))


@decomposes(aten.scatter_add.default)
def _scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scatter_reduced(x, dim, index, source, "sum")


@decomposes(aten.scatter_reduce.two)
def _scatter_reduced(
    x: Tensor, dim: int, index: Tensor, source: Tensor, kind: str, *, include_self: bool = True
) -> Tensor:
    """Each place reduces over all of the source, in which what goes elsewhere is neutral."""
    if not x.ndim:
        return _scatter_reduced(
            x.reshape(1), 0, index.reshape(-1), source.reshape(-1), kind, include_self=include_self
        ).reshape(())  # fmt: skip
    given = source[tuple(slice(size) for size in index.shape)].reshape(-1)
    at = _positions(x.shape, dim, index).reshape(-1)
    here = at == torch.arange(x.numel()).unsqueeze(-1)
    own = x.reshape(-1, 1)
    kept = torch.ones_like(own, dtype=torch.bool)
    if not include_self:
        kept = here.any(-1, keepdim=True).logical_not()
    parts = torch.cat([torch.where(kept, own, _NEUTRAL[kind]), torch.where(here, given, _NEUTRAL[kind])], 1)
    total = _REDUCTIONS[kind](parts)
    if kind == "mean":
        total = total / (here.sum(-1) + kept.squeeze(1)).clamp(min=1)
    return total.reshape(x.shape)


_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda parts: parts.sum(1),
    "mean": lambda parts: parts.sum(1),
    "prod": lambda parts: parts.prod(1),
    "amax": lambda parts: parts.amax(1),
    "amin": lambda parts: parts.amin(1),
}
_MOST = torch.finfo(torch.float32).max
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -_MOST, "amin": _MOST}


@decomposes(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    given = [index for index in indices if index is not None]
    if given and given[0].dtype == torch.bool:
        mask = given[0].reshape(*given[0].shape, *(1,) * (x.ndim - given[0].ndim))
        return torch.where(mask, x + values if accumulate else values, x)
    if len(given) == 1 and given[0].ndim == 1 and not accumulate:
        axis = next(axis for axis, index in enumerate(indices) if index is not None)
        dims = (*x.shape[:axis], given[0].numel(), *x.shape[axis + 1 :])
        return _written(x, axis, _wrapped(given[0], x.shape[axis]), values.expand(dims))
    places = torch.arange(x.numel()).reshape(x.shape)
    at = aten.index.Tensor(places, indices)
    source = values.expand(at.shape).reshape(-1)
    if accumulate:
        return _scatter_add(x.reshape(-1), 0, at.reshape(-1), source).reshape(x.shape)
    return _written(x.reshape(-1), 0, at.reshape(-1), source).reshape(x.shape)


@decomposes(aten.index_copy.default)
def _index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    if not x.ndim:
        return source.reshape(())
    return _written(x, dim, index.reshape(-1), source)


@decomposes(aten.masked_scatter.default)
def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Each place that the mask names reads the source at the number of such places before it."""
    x, mask = torch.broadcast_tensors(x, mask)
    before = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    read = source.reshape(-1).index_select(0, before.clamp(0, source.numel() - 1))
    return torch.where(mask, read.reshape(x.shape), x)


@decomposes(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, _scaled: bool = False, mode: int = 0, _sparse: bool = False,
    per_sample: Tensor | None = None, include_last_offset: bool = False, padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """A sum, mean or maximum over the rows of each bag, from its offset to the next one's."""
    ends = offsets[1:] if include_last_offset else torch.cat([offsets[1:], torch.full((1,), indices.numel())])
    begins = offsets[:-1] if include_last_offset else offsets
    at = torch.arange(indices.numel())
    inside = (at >= begins.unsqueeze(-1)) & (at < ends.unsqueeze(-1)) & (indices != padding)
    rows = weight.index_select(0, indices)
    count = inside.sum(-1)
    if mode == 2:
        highest = torch.where(inside.unsqueeze(-1), rows, -_MOST).amax(1)
        bags = torch.where((count > 0).unsqueeze(-1), highest, 0.0)
    else:
        shares = torch.where(inside, 1.0 if per_sample is None else per_sample, 0.0)
        bags = shares @ rows
        bags = bags / count.clamp(min=1).unsqueeze(-1) if mode == 1 else bags
    return bags, offsets, count, offsets


def _wrapped(index: Tensor, count: int) -> Tensor:
    return torch.where(index < 0, index + count, index)


def _positions(dims: Sequence[int], dim: int, index: Tensor) -> Tensor:
    """Where in a flat tensor the elements lie that have the numbers of `index` along `dim`, and else its own place."""
    at: Any = torch.zeros((), dtype=torch.int64)
    for axis, size in enumerate(index.shape):
        here = index if axis == dim % len(dims) else torch.arange(size).reshape(-1, *(1,) * (index.ndim - 1 - axis))
        at = at + here * math.prod(dims[axis + 1 :])
    return at


def _written(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`x` with the slices of `source` at the places `index` along `dim`; of several for one place, the last."""
    if index.numel() <= MOST_ROWS:
        return WRITE_ROWS(x, dim % x.ndim, index, source.to(x.dtype))
    count = x.shape[dim]
    places, writes = torch.arange(count), torch.arange(index.numel())
    last = torch.where(index == places.unsqueeze(-1), writes, -1).amax(-1)
    read = torch.where(last < 0, places, last + count)
    return torch.cat([x, source.to(x.dtype)], dim).index_select(dim, read)
