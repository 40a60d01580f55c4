"""Elements taken and put by their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@onnx_op("Gather")
def _gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.ndim
    index = _from_the_front(indices, x.shape[axis])
    taken = x.index_select(axis, index.reshape(-1))
    return taken.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@onnx_op("GatherElements")
def _gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, _from_the_front(indices, x.shape[axis]))


@onnx_op("GatherND")
def _gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = indices.shape[-1]
    batch, sizes = x.shape[:batch_dims], x.shape[batch_dims : batch_dims + depth]
    rows = x.reshape(-1, *x.shape[batch_dims + depth :])
    first = torch.arange(math.prod(batch)).reshape(*batch, *(1,) * (indices.ndim - 1 - batch_dims)) * math.prod(sizes)
    place = _place(indices, sizes) + first
    return rows.index_select(0, place.reshape(-1)).reshape(*place.shape, *rows.shape[1:])


@onnx_op("ScatterElements")
def _scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    index = _from_the_front(indices, x.shape[axis])
    if reduction == "none":
        return torch.scatter(x, axis, index, updates)
    return torch.scatter_reduce(x, axis, index, updates, _REDUCTIONS[reduction])


@onnx_op("ScatterND")
def _scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    rows = x.reshape(math.prod(x.shape[:depth]), -1)
    index = _place(indices, x.shape[:depth]).reshape(-1, 1).expand(-1, rows.shape[1])
    new = updates.reshape(index.shape)
    if reduction == "none":
        return torch.scatter(rows, 0, index, new).reshape(x.shape)
    return torch.scatter_reduce(rows, 0, index, new, _REDUCTIONS[reduction]).reshape(x.shape)


@onnx_op("TensorScatter", lists="write_indices")
def _tensor_scatter(
    past: Tensor, update: Tensor, write_indices: Sequence[int] | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Each sample's update lies from its own index on; in `circular` mode what exceeds the end goes to the front."""
    axis %= past.ndim
    starts = np.zeros(past.shape[0], np.int64) if write_indices is None else np.asarray(write_indices)
    steps = (starts[:, None] + np.arange(update.shape[axis])) % past.shape[axis]
    index = torch.from_numpy(steps.reshape(-1, *(1,) * (axis - 1), steps.shape[1], *(1,) * (past.ndim - axis - 1)))
    return torch.scatter(past, axis, index.expand(update.shape), update)


@onnx_op("OneHot", numbers="depth")
def _one_hot(indices: Tensor, depth: float, values: Tensor, *, axis: int = -1) -> Tensor:
    places = torch.remainder(indices, int(depth)).unsqueeze(axis)
    shape = [1] * places.ndim
    shape[axis] = -1
    return torch.where(places == torch.arange(int(depth)).reshape(shape), values[1], values[0])


@onnx_op("Compress", arrays="condition")
def _compress(x: Tensor, condition: np.ndarray, *, axis: int | None = None) -> Tensor:
    index = torch.from_numpy(np.flatnonzero(condition))
    return x.reshape(-1).index_select(0, index) if axis is None else x.index_select(axis, index)


@onnx_op("ReverseSequence")
def _reverse_sequence(x: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    shape = [1] * x.ndim
    shape[time_axis] = -1
    step = torch.arange(x.shape[time_axis]).reshape(shape)
    shape = [1] * x.ndim
    shape[batch_axis] = -1
    last = sequence_lens.reshape(shape) - 1
    return torch.gather(x, time_axis, torch.where(step <= last, last - step, step).expand(x.shape))


@onnx_op("MaxUnpool", lists="output_shape")
def _max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Sequence[int] | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Each element lies where its index says, counted through the image that the strides tell."""
    steps, around = strides or [1] * len(kernel_shape), pads or [0] * (2 * len(kernel_shape))
    size = [
        (length - 1) * step + kernel - around[axis] - around[axis + len(kernel_shape)]
        for axis, (length, step, kernel) in enumerate(zip(x.shape[2:], steps, kernel_shape, strict=True))
    ]
    shape = [*x.shape[:2], *size]
    flat = torch.zeros(math.prod(shape), dtype=x.dtype)
    image = torch.scatter(flat, 0, indices.reshape(-1), x.reshape(-1)).reshape(shape)
    if output_shape is None or list(output_shape) == shape:
        return image
    widths = [w for axis in reversed(range(x.ndim)) for w in (0, output_shape[axis] - shape[axis])]
    return torch.nn.functional.pad(image, widths)


def _from_the_front(indices: Tensor, size: int) -> Tensor:
    """The same indices, none of which counts from the end."""
    return torch.where(indices < 0, indices + size, indices).to(torch.int64)


def _place(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """The places, in an array of `sizes`, of tuples of indices along the last axis."""
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    place = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        place = place + _from_the_front(indices[..., axis], size) * step
    return place
