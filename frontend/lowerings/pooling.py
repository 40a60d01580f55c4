"""Pools, means and other reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import torch
from torch.fx import Node

from tosaic.frontend.builder import NCHW, NHWC, Builder, shape
from tosaic.frontend.canonical import complete_arguments
from tosaic.frontend.lowerings.convolution import fit, pair
from tosaic.frontend.lowerings.elementwise import truth
from tosaic.frontend.lowerings.op_quantization import Averaged, OneToOne, Shared
from tosaic.frontend.lowerings.registry import lowers
from tosaic.frontend.lowerings.shape import strided
from tosaic.support.mlir import ir

aten = torch.ops.aten


@lowers(aten.max_pool2d.default, quantized=Shared())
def max_pool2d(
    b: Builder,
    node: Node,
    x: ir.Value,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> ir.Value:
    if pair(dilation) == [1, 1]:
        return _spatial(b, x, lambda image: _pool(b, node, "max_pool2d", image, kernel, stride, padding))
    window = pair(kernel), pair(stride) if stride else pair(kernel), pair(padding), pair(dilation)
    return _spatial(b, x, lambda image: _dilated_max(b, node, image, *window))


def _dilated_max(
    b: Builder,
    node: Node,
    image: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> ir.Value:
    """The maximum of the images that each tap reads: along the rows, then along the columns."""
    geometry = zip(_first_of(node).shape[-2:], kernel, stride, padding, dilation, strict=True)
    for axis, (size, taps, step, pad, apart) in enumerate(geometry, start=1):
        reach = (size - 1) * step + (taps - 1) * apart + 1
        behind = max(0, reach - shape(image)[axis] - pad)
        sides = [(pad, behind) if i == axis else (0, 0) for i in range(4)]
        padded = b.pad(image, sides, -float(np.finfo(np.float32).max))
        read = [strided(b, padded, axis, tap * apart, step, size) for tap in range(taps)]
        image = reduce(lambda one, other: b.pointwise("maximum", one, other), read)
    return image


def _covers_image(node: Node) -> bool:
    """Whether no window of an average pool hangs over the image, so that all divide by the same number."""
    _, _, _, padding, ceil_mode, counts_padding, _ = complete_arguments(node)
    return not ceil_mode and (counts_padding or not any(pair(padding)))


@lowers(aten.avg_pool2d.default, quantized=Averaged(_covers_image))
def avg_pool2d(
    b: Builder,
    node: Node,
    x: ir.Value,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> ir.Value:
    def pool(image: ir.Value) -> ir.Value:
        if divisor is None and not count_include_pad:
            return _pool(b, node, "avg_pool2d", image, kernel, stride, padding)
        (py, px), (hy, hx) = pair(padding), _hanging(node, image, kernel, stride, padding) if divisor else (0, 0)
        padded = b.pad(image, [(0, 0), (py, py + hy), (px, px + hx), (0, 0)])
        average = _pool(b, node, "avg_pool2d", padded, kernel, stride, [0, 0])
        return b.pointwise("mul", average, math.prod(pair(kernel)) / divisor) if divisor else average

    return _spatial(b, x, pool)


@lowers(aten._adaptive_avg_pool2d.default)
@lowers(aten.adaptive_avg_pool2d.default, quantized=Averaged())
def adaptive_avg_pool2d(b: Builder, node: Node, x: ir.Value, size: list[int]) -> ir.Value:
    return _adaptive(b, node, "avg_pool2d", x, size)


@lowers(aten.adaptive_max_pool2d.default, quantized=Shared())
def adaptive_max_pool2d(b: Builder, node: Node, x: ir.Value, size: list[int]) -> tuple[ir.Value]:
    return (_adaptive(b, node, "max_pool2d", x, size),)


def _adaptive(b: Builder, node: Node, name: str, x: ir.Value, size: list[int]) -> ir.Value:
    given = shape(x)[-2:]
    wanted = [given[i] if n is None else n for i, n in enumerate(pair(size))]
    if wanted == [1, 1]:
        return _spatial(b, x, lambda image: _whole(b, name, image))
    if all(have % want == 0 for have, want in zip(given, wanted, strict=True)):
        window = [have // want for have, want in zip(given, wanted, strict=True)]
        return _spatial(b, x, lambda image: _pool(b, node, name, image, window, window, [0, 0]))
    return _spatial(b, x, lambda image: _uneven(b, name, image, wanted))


def _uneven(b: Builder, name: str, image: ir.Value, wanted: Sequence[int]) -> ir.Value:
    """A pool for each output: its window begins at floor(i * have / want) and ends at ceil((i + 1) * have / want)."""
    rows, columns = (
        [(i * have // want, -(-(i + 1) * have // want)) for i in range(want)]
        for have, want in zip(shape(image)[1:3], wanted, strict=True)
    )

    def pooled(y: tuple[int, int], x: tuple[int, int]) -> ir.Value:
        part = b.narrow(b.narrow(image, 1, y[0], y[1] - y[0]), 2, x[0], x[1] - x[0])
        return _whole(b, name, part)

    return b.concat([b.concat([pooled(y, x) for x in columns], 2) for y in rows], 1)


@lowers(aten.mean.dim, aten.mean.default, quantized=Averaged())
def mean(b: Builder, node: Node, x: ir.Value, dims: list[int] | None = None, *_options: object) -> ir.Value:
    """As an average pool, which quantizes as one op: the reduced axes become a window."""
    x = b.cast(x, b.element(node))
    if not shape(x):
        return x
    dims_in = shape(x)
    axes = _axes(dims, len(dims_in))
    result = tuple(node.meta["val"].shape)
    if len(dims_in) == 4 and axes == [2, 3]:
        return b.reshape(b.transpose(_whole(b, "avg_pool2d", b.transpose(x, NHWC)), NCHW), result)
    kept = [axis for axis in range(len(dims_in)) if axis not in axes]
    before = [axis for axis in kept if axis < axes[0]]
    after = [axis for axis in kept if axis > axes[0]]
    moved = b.transpose(x, [*before, *axes, *after])
    sizes = [math.prod(dims_in[axis] for axis in group) for group in (before, axes, after)]
    return b.reshape(_whole(b, "avg_pool2d", b.reshape(moved, (sizes[0], sizes[1], 1, sizes[2]))), result)


def _whole(b: Builder, name: str, image: ir.Value) -> ir.Value:
    """One window over the whole image; its stride is 1, the only one that every NPU takes."""
    n, h, w, c = shape(image)
    return _window(b, name, image, (h, w), (1, 1), (0, 0, 0, 0), (n, 1, 1, c))


@lowers(aten.sum.dim_IntList, aten.sum.default, quantized=OneToOne())
def sum_(b: Builder, node: Node, x: ir.Value, dims: list[int] | None = None, *_options: object) -> ir.Value:
    return _reduce(b, node, "sum", b.cast(x, b.element(node)), dims)


def _reduction(name: str) -> Callable:
    def emit(b: Builder, node: Node, x: ir.Value, dims: list[int] | int | None = None, *_options: object) -> ir.Value:
        return _reduce(b, node, name, x, dims)

    return emit


lowers(aten.amax.default, quantized=Shared())(_reduction("max"))
lowers(aten.amin.default, quantized=Shared())(_reduction("min"))
lowers(aten.max.default, quantized=Shared())(_reduction("max"))
lowers(aten.min.default, quantized=Shared())(_reduction("min"))


def _quantifier(name: str) -> Callable:
    def emit(b: Builder, node: Node, x: ir.Value, dims: list[int] | int | None = None, *_options: object) -> ir.Value:
        return _reduce(b, node, name, truth(b, x), dims)

    return emit


lowers(aten.any.dim, aten.any.dims, aten.any.default)(_quantifier("any"))
lowers(aten.all.dim, aten.all.dims, aten.all.default)(_quantifier("all"))


def _reduce(b: Builder, node: Node, name: str, x: ir.Value, dims: Sequence[int] | int | None) -> ir.Value:
    result = _first_of(node).shape
    for axis in _axes(dims, len(shape(x))):
        x = b.reduce(name, x, axis)
    return b.reshape(x, tuple(result))


@lowers(aten.max.dim, quantized=Shared())
def max_dim(b: Builder, node: Node, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value, ir.Value]:
    return _reduce(b, node, "max", x, [dim]), _argmax(b, node, x, dim, node.meta["val"][1].shape)


@lowers(aten.min.dim, quantized=Shared())
def min_dim(b: Builder, node: Node, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value, ir.Value]:
    index = _argmax(b, node, b.pointwise("negate", x), dim, node.meta["val"][1].shape)
    return _reduce(b, node, "min", x, [dim]), index


@lowers(aten.argmax.default)
def argmax(b: Builder, node: Node, x: ir.Value, dim: int | None, keepdim: bool) -> ir.Value:
    if dim is None:
        x, dim = b.reshape(x, (math.prod(shape(x)),)), 0
    return _argmax(b, node, x, dim, node.meta["val"].shape)


@lowers(aten.argmin.default)
def argmin(b: Builder, node: Node, x: ir.Value, dim: int | None, keepdim: bool) -> ir.Value:
    return argmax(b, node, b.pointwise("negate", x), dim, keepdim)


def _argmax(b: Builder, node: Node, x: ir.Value, dim: int, result: Sequence[int]) -> ir.Value:
    x = b.value(b.ranked(x, 1))
    axis = dim % len(shape(x))
    dims = [size for i, size in enumerate(shape(x)) if i != axis]
    index = b.op("argmax", [x], dims, b.i32, axis=ir.IntegerAttr.get(b.i32, axis))
    return b.reshape(index, tuple(result))


def _spatial(b: Builder, x: ir.Value, pool: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Apply a pool of NHWC images to a [N,]C,H,W tensor."""
    dims = shape(x)
    image = b.transpose(b.reshape(x, (1, *dims) if len(dims) == 3 else dims), NHWC)
    result = b.transpose(pool(image), NCHW)
    return b.reshape(result, shape(result)[1:]) if len(dims) == 3 else result


def _pool(
    b: Builder,
    node: Node,
    name: str,
    image: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> ir.Value:
    """A pool whose output size is the node's: under ceil_mode the last window hangs over into padding."""
    result = _first_of(node).shape[-2:]
    hanging = _hanging(node, image, kernel, stride, padding)
    kernel, padding = pair(kernel), pair(padding)
    stride = pair(stride) if stride else kernel
    pad = [padding[0], padding[0] + hanging[0], padding[1], padding[1] + hanging[1]]
    image, pad = fit(b, image, kernel, stride, pad)
    n, _, _, c = shape(image)
    return _window(b, name, image, kernel, stride, pad, (n, *result, c))


def _hanging(
    node: Node, image: ir.Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> list[int]:
    """How far the last windows reach beyond the padding, under ceil_mode."""
    steps = pair(stride) if stride else pair(kernel)
    geometry = zip(_first_of(node).shape[-2:], steps, pair(kernel), shape(image)[1:3], pair(padding), strict=True)
    return [max(0, (count - 1) * step + taps - size - 2 * pad) for count, step, taps, size, pad in geometry]


def _first_of(node: Node) -> torch.Tensor:
    """A node's result, the first where it has several."""
    value = node.meta["val"]
    return value[0] if isinstance(value, tuple | list) else value


def _window(
    b: Builder,
    name: str,
    image: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    result: Sequence[int],
) -> ir.Value:
    attributes = {
        "kernel": ir.DenseI64ArrayAttr.get(list(kernel)),
        "stride": ir.DenseI64ArrayAttr.get(list(stride)),
        "pad": ir.DenseI64ArrayAttr.get(list(pad)),
    }
    operands = [image]
    if name == "avg_pool2d":
        attributes["acc_type"] = ir.TypeAttr.get(b.f32)
        operands += [b.zero_point(image), b.zero_point(image)]
    return b.op(name, operands, result, **attributes)


def _axes(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    if isinstance(dims, int):
        dims = [dims]
    return sorted(dim % rank for dim in dims) if dims and rank else list(range(rank))
