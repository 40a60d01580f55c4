"""Pools, means and other reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.fx import Node

from tosaic.frontend.builder import NCHW, NHWC, Builder, shape
from tosaic.frontend.canonical import complete_arguments
from tosaic.frontend.lowerings.convolution import fit, pair
from tosaic.frontend.lowerings.op_quantization import Averaged, OneToOne, Shared
from tosaic.frontend.lowerings.registry import lowers
from tosaic.support.errors import ModelError
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
    if pair(dilation) != [1, 1]:
        raise ModelError("a dilated max pool cannot be compiled", hint="use dilation 1")
    return _spatial(b, x, lambda image: _pool(b, node, "max_pool2d", image, kernel, stride, padding))


@lowers(aten.max_pool2d_with_indices.default)
def max_pool2d_with_indices(b: Builder, node: Node, x: ir.Value, *window: object) -> tuple[ir.Value]:
    return (max_pool2d(b, node, x, *window),)


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
    if divisor is not None:
        raise ModelError("divisor_override cannot be compiled", hint="leave it out and multiply afterwards")

    def pool(image: ir.Value) -> ir.Value:
        inside = padding
        if count_include_pad:
            py, px = pair(padding)
            image, inside = b.pad(image, [(0, 0), (py, py), (px, px), (0, 0)]), [0, 0]
        return _pool(b, node, "avg_pool2d", image, kernel, stride, inside)

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
lowers(aten.any.dim, aten.any.default)(_reduction("any"))
lowers(aten.all.dim, aten.all.default)(_reduction("all"))


def _reduce(b: Builder, node: Node, name: str, x: ir.Value, dims: Sequence[int] | int | None) -> ir.Value:
    value = node.meta["val"]
    result = (value[0] if isinstance(value, tuple | list) else value).shape
    for axis in _axes(dims, len(shape(x))):
        x = b.reduce(name, x, axis)
    return b.reshape(x, tuple(result))


@lowers(aten.max.dim, quantized=Shared())
def max_dim(b: Builder, node: Node, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value, ir.Value]:
    return _reduce(b, node, "max", x, [dim]), _argmax(b, node, x, dim, node.meta["val"][1].shape)


@lowers(aten.argmax.default)
def argmax(b: Builder, node: Node, x: ir.Value, dim: int | None, keepdim: bool) -> ir.Value:
    if dim is None:
        x, dim = b.reshape(x, (math.prod(shape(x)),)), 0
    return _argmax(b, node, x, dim, node.meta["val"].shape)


@lowers(aten.argmin.default)
def argmin(b: Builder, node: Node, x: ir.Value, dim: int | None, keepdim: bool) -> ir.Value:
    return argmax(b, node, b.pointwise("negate", x), dim, keepdim)


def _argmax(b: Builder, node: Node, x: ir.Value, dim: int, result: Sequence[int]) -> ir.Value:
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
    value = node.meta["val"]
    result = (value[0] if isinstance(value, tuple | list) else value).shape[-2:]
    kernel, padding = pair(kernel), pair(padding)
    stride = pair(stride) if stride else kernel
    pad = [padding[0], padding[0], padding[1], padding[1]]
    for axis in (0, 1):
        needed = (result[axis] - 1) * stride[axis] + kernel[axis] - shape(image)[1 + axis] - 2 * padding[axis]
        pad[2 * axis + 1] += max(0, needed)
    image, pad = fit(b, image, kernel, stride, pad)
    n, _, _, c = shape(image)
    return _window(b, name, image, kernel, stride, pad, (n, *result, c))


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
