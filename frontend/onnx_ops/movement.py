"""Shapes, and elements that only move."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op
from tosaic.support.errors import ModelError


@onnx_op("Shape")
def _shape(x: Tensor, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.array(x.shape[start:end], np.int64)


@onnx_op("Size")
def _size(x: Tensor) -> np.ndarray:
    return np.array(x.numel(), np.int64)


@onnx_op("Reshape", lists="shape")
def _reshape(x: Tensor, shape: Sequence[int], *, allowzero: int = 0) -> Tensor:
    return x.reshape([size if size or allowzero else x.shape[axis] for axis, size in enumerate(shape)])


@onnx_op("Flatten")
def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@onnx_op("Transpose")
def _transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(tuple(perm) if perm else tuple(reversed(range(x.ndim))))


@onnx_op("Squeeze", lists="axes")
def _squeeze(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    return torch.squeeze(x) if axes is None else torch.squeeze(x, tuple(axes))


@onnx_op("Unsqueeze", lists="axes")
def _unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


@onnx_op("Concat")
def _concat(*tensors: Tensor, axis: int) -> Tensor:
    return torch.cat([one for one in tensors if one.numel()] or tensors[:1], axis)


@onnx_op("Split", lists="split")
def _split(
    x: Tensor, split: Sequence[int] | None = None, *, axis: int = 0, num_outputs: int | None = None, results: int
) -> tuple[Tensor, ...]:
    if split is None:
        return torch.split(x, math.ceil(x.shape[axis] / results), axis)
    starts = [sum(split[:number]) for number in range(len(split))]
    return tuple(x.narrow(axis, start, size) for start, size in zip(starts, split, strict=True))


@onnx_op("Slice", lists="starts ends axes steps")
def _slice(
    x: Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    kept, turned = [slice(None)] * x.ndim, list[int]()
    for axis, start, end, step in zip(
        range(len(starts)) if axes is None else axes, starts, ends, steps or [1] * len(starts), strict=True
    ):
        picked = range(*slice(start, end, step).indices(x.shape[axis]))
        if step < 0:
            picked = picked[::-1]
            turned.append(axis)
        kept[axis] = slice(picked.start, max(picked.start, picked.stop), picked.step)
    x = x[tuple(kept)]
    return x.flip(turned) if turned else x


@onnx_op("Expand", lists="shape")
def _expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(shape)))


@onnx_op("Tile", lists="repeats")
def _tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return x.repeat(*repeats)


@onnx_op("Pad", lists="pads axes", numbers="constant_value")
def _pad(
    x: Tensor,
    pads: Sequence[int],
    constant_value: float | None = None,
    axes: Sequence[int] | None = None,
    *,
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    places = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    around = {axis: (pads[i], pads[i + len(places)]) for i, axis in enumerate(places)}
    if mode == "constant":
        widths = [width for axis in reversed(range(x.ndim)) for width in around.get(axis, (0, 0))]
        return F.pad(x, widths, value=value if constant_value is None else constant_value)
    for axis, (before, after) in around.items():
        x = x.narrow(axis, max(0, -before), x.shape[axis] - max(0, -before) - max(0, -after))
        widths = [max(0, before), max(0, after)]
        if any(widths):
            index = np.pad(np.arange(x.shape[axis]), widths, mode=mode)  # type: ignore[call-overload]
            x = x.index_select(axis, torch.from_numpy(index))
    return x


@onnx_op("DepthToSpace")
def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    batch, channels, height, width = x.shape
    depth = channels // blocksize**2
    if mode == "DCR":
        x = x.reshape(batch, blocksize, blocksize, depth, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(batch, depth, blocksize, blocksize, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(batch, depth, height * blocksize, width * blocksize)


@onnx_op("SpaceToDepth")
def _space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    batch, channels, height, width = x.shape
    blocks = x.reshape(batch, channels, height // blocksize, blocksize, width // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.permute(order).reshape(batch, -1, height // blocksize, width // blocksize)


@onnx_op("Trilu", numbers="k")
def _trilu(x: Tensor, k: int | None = None, *, upper: int = 1) -> Tensor:
    kept = np.triu(np.ones(tuple(x.shape[-2:]), bool), k or 0)
    if not upper:
        kept = np.tril(np.ones(tuple(x.shape[-2:]), bool), k or 0)
    return torch.where(torch.from_numpy(kept), x, torch.zeros((), dtype=x.dtype))


@onnx_op("EyeLike")
def _eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> np.ndarray:
    if dtype not in (None, 1):
        raise ModelError("its result is no float32")
    return np.eye(x.shape[0], x.shape[1], k=k, dtype=np.float32)


@onnx_op("Col2Im", lists="image_shape block_shape")
def _col2im(
    x: Tensor,
    image_shape: Sequence[int],
    block_shape: Sequence[int],
    *,
    dilations: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    strides: Sequence[int] = (1, 1),
) -> Tensor:
    rank = len(image_shape)
    if rank != 2 or list(pads[:rank]) != list(pads[rank:]):
        raise ModelError("it is compiled for images alone, with equal pads before and behind")
    return F.fold(x, tuple(image_shape), tuple(block_shape), tuple(dilations), tuple(pads[:rank]), tuple(strides))
