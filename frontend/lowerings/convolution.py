"""Convolutions: NHWC between two transposes, weights straight in TOSA's layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.fx import Node

from tosaic.frontend.builder import NCHW, NHWC, Builder, Operand, shape
from tosaic.frontend.constant import Constant
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import lowers
from tosaic.support.errors import ModelError
from tosaic.support.mlir import ir

aten = torch.ops.aten


@lowers(aten.conv2d.default, aten.conv2d.padding, raw=("weight", "bias"), quantized=Weighted(result_axis=-3))
def conv2d(
    b: Builder,
    node: Node,
    x: ir.Value,
    weight: Operand,
    bias: Operand | None,
    stride: list[int],
    padding: list[int] | str,
    dilation: list[int],
    groups: int,
) -> ir.Value:
    stride, dilation = pair(stride), pair(dilation)
    pad = _sides(padding, shape(weight)[2:], dilation)
    image = b.transpose(b.ranked(x, 4), NHWC)
    result = b.transpose(_convolve(b, image, weight, bias, stride, pad, dilation, groups), NCHW)
    return b.reshape(result, tuple(node.meta["val"].shape))


@lowers(aten.conv1d.default, aten.conv1d.padding, raw=("weight", "bias"), quantized=Weighted(result_axis=-2))
def conv1d(
    b: Builder,
    node: Node,
    x: ir.Value,
    weight: Operand,
    bias: Operand | None,
    stride: list[int],
    padding: list[int] | str,
    dilation: list[int],
    groups: int,
) -> ir.Value:
    x = b.ranked(x, 3)
    n, c, length = shape(x)
    out, per_group, taps = shape(weight)
    kernel = (out, per_group, 1, taps)
    weight = weight.reshape(kernel, axis=weight.axis) if isinstance(weight, Constant) else b.reshape(weight, kernel)
    rows = b.reshape(b.transpose(x, (0, 2, 1)), (n, 1, length, c))
    pad = [0, 0, *_sides(padding, [taps], dilation)]
    y = _convolve(b, rows, weight, bias, [1, stride[0]], pad, [1, dilation[0]], groups)
    return b.reshape(b.transpose(b.reshape(y, (n, shape(y)[2], out)), (0, 2, 1)), tuple(node.meta["val"].shape))


@lowers(aten.conv_transpose2d.input, raw=("weight", "bias"), quantized=Weighted(result_axis=-3, weight_axis=1))
def conv_transpose2d(
    b: Builder,
    node: Node,
    x: ir.Value,
    weight: Operand,
    bias: Operand | None,
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    groups: int,
    dilation: list[int],
) -> ir.Value:
    (sy, sx), (py, px), (oy, ox) = pair(stride), pair(padding), pair(output_padding)
    weight = _spread(b, weight, pair(dilation))
    _, per_group, kh, kw = shape(weight)
    image = b.transpose(b.ranked(x, 4), NHWC)
    n, h, w, c = shape(image)
    out_pad = [-py, oy - py, -px, ox - px]
    oh = (h - 1) * sy + out_pad[0] + out_pad[1] + kh
    ow = (w - 1) * sx + out_pad[2] + out_pad[3] + kw
    image, out_pad[:2] = _uncropped(b, image, 1, kh, sy, out_pad[:2])
    image, out_pad[2:] = _uncropped(b, image, 2, kw, sx, out_pad[2:])
    results = []
    for group in range(groups):
        size = c // groups
        part = b.narrow(image, 3, group * size, size)
        kernel = _oriented(b, _part(b, weight, group * size, size), (1, 2, 3, 0))
        offsets = _bias(b, bias, group * per_group, per_group)
        results.append(
            b.op(
                "transpose_conv2d",
                [part, kernel, offsets, b.zero_point(part), b.zero_point(kernel)],
                [n, oh, ow, per_group],
                out_pad=ir.DenseI64ArrayAttr.get(out_pad),
                stride=ir.DenseI64ArrayAttr.get([sy, sx]),
                acc_type=ir.TypeAttr.get(b.f32),
            )
        )
    return b.reshape(b.transpose(b.concat(results, 3), NCHW), tuple(node.meta["val"].shape))


def _spread(b: Builder, weight: Operand, dilation: Sequence[int]) -> Operand:
    """A kernel with zeros between its taps: TRANSPOSE_CONV2D has no dilation."""
    outer, inner, *taps = shape(weight)
    reach = [(size - 1) * step + 1 for size, step in zip(taps, dilation, strict=True)]
    if reach == taps:
        return weight
    if isinstance(weight, Constant):
        return weight.spread((1, 1, *dilation))
    split = b.reshape(weight, (outer, inner, taps[0], 1, taps[1], 1))
    padded = b.pad(split, [(0, 0), (0, 0), (0, 0), (0, dilation[0] - 1), (0, 0), (0, dilation[1] - 1)])
    joined = b.reshape(padded, (outer, inner, taps[0] * dilation[0], taps[1] * dilation[1]))
    return b.slice(joined, [0, 0, 0, 0], [outer, inner, *reach])


def _uncropped(
    b: Builder, image: ir.Value, axis: int, kernel: int, stride: int, sides: list[int]
) -> tuple[ir.Value, list[int]]:
    """The image without what reaches no result: TOSA crops less than the kernel (TOSA 1.0, TRANSPOSE_CONV2D)."""
    dropped = [max(0, -(-(1 - kernel - side) // stride)) for side in sides]
    left = shape(image)[axis] - sum(dropped)
    if left < 1:
        raise ModelError(
            "a transposed convolution that crops all that it computes cannot be compiled",
            hint="its result is the bias alone",
        )
    kept = [side + stride * count for side, count in zip(sides, dropped, strict=True)]
    return b.narrow(image, axis, dropped[0], left), kept


def _convolve(
    b: Builder,
    image: ir.Value,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> ir.Value:
    """NHWC convolution with an OIHW weight; pad is [top, bottom, left, right]."""
    out, per_group, kh, kw = shape(weight)
    channels = shape(image)[3]
    image, pad = fit(b, image, (kh, kw), stride, pad, dilation)
    if groups == channels and groups > 1 and (out == channels or not _per_channel(weight)):
        kernel = _depthwise_kernel(b, weight, channels)
        return _emit(b, "depthwise_conv2d", image, kernel, _bias(b, bias, 0, out), (kh, kw), out, stride, pad, dilation)
    results = []
    size = out // groups
    for group in range(groups):
        part = b.narrow(image, 3, group * per_group, per_group)
        kernel = _oriented(b, _part(b, weight, group * size, size), NHWC)
        offsets = _bias(b, bias, group * size, size)
        results.append(_emit(b, "conv2d", part, kernel, offsets, (kh, kw), size, stride, pad, dilation))
    return b.concat(results, 3)


def _sides(padding: list[int] | str, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """(before, after) for each axis, joined; `same` puts the odd one after, as PyTorch does."""
    if padding == "valid":
        return [0, 0] * len(kernel)
    if padding == "same":
        totals = [(size - 1) * step for size, step in zip(kernel, dilation, strict=True)]
        return [side for total in totals for side in (total // 2, total - total // 2)]
    return [side for one in np.broadcast_to(padding, len(kernel)).tolist() for side in (one, one)]


def fit(
    b: Builder,
    image: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int] = (1, 1),
) -> tuple[ir.Value, list[int]]:
    """Padding and image such that the windows cover the NHWC image without rest, as TOSA demands.

    What PyTorch leaves unread at the bottom and right comes off the padding first, then off the image.
    """
    pad = list(pad)
    size = list(shape(image))
    for axis in (0, 1):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        rest = (size[1 + axis] + pad[2 * axis] + pad[2 * axis + 1] - reach) % stride[axis]
        from_pad = min(rest, pad[2 * axis + 1])
        pad[2 * axis + 1] -= from_pad
        size[1 + axis] -= rest - from_pad
    return b.slice(image, [0, 0, 0, 0], size), pad


def _emit(
    b: Builder,
    name: str,
    image: ir.Value,
    kernel: ir.Value,
    bias: ir.Value,
    window: tuple[int, int],
    out: int,
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
) -> ir.Value:
    n, h, w, _ = shape(image)
    dims = [
        (size + pad[2 * i] + pad[2 * i + 1] - (window[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i, size in enumerate((h, w))
    ]
    return b.op(
        name,
        [image, kernel, bias, b.zero_point(image), b.zero_point(kernel)],
        [n, *dims, out],
        pad=ir.DenseI64ArrayAttr.get(list(pad)),
        stride=ir.DenseI64ArrayAttr.get(list(stride)),
        dilation=ir.DenseI64ArrayAttr.get(list(dilation)),
        acc_type=ir.TypeAttr.get(b.f32),
    )


def _depthwise_kernel(b: Builder, weight: Operand, channels: int) -> ir.Value:
    """OIHW with I = 1 to HWCM, where output channel c * M + m is weight[h, w, c, m]."""
    out, _, kh, kw = shape(weight)
    multiplier = out // channels
    if multiplier == 1:
        return _oriented(b, weight, (2, 3, 0, 1))
    split = (channels, multiplier, kh, kw)
    if isinstance(weight, Constant):
        return b.value(weight.reshape(split).transpose((2, 3, 0, 1)))
    return b.transpose(b.reshape(weight, split), (2, 3, 0, 1))


def _per_channel(weight: Operand) -> bool:
    """Whether the scales vary; then C and M cannot share one axis, and a multiplier over 1 goes by groups."""
    return isinstance(weight, Constant) and weight.axis is not None


def _oriented(b: Builder, weight: Operand, axes: Sequence[int]) -> ir.Value:
    return b.value(weight.transpose(axes)) if isinstance(weight, Constant) else b.transpose(weight, axes)


def _part(b: Builder, weight: Operand, start: int, size: int) -> Operand:
    if size == shape(weight)[0]:
        return weight
    return weight.take(start, size, 0) if isinstance(weight, Constant) else b.narrow(weight, 0, start, size)


def _bias(b: Builder, bias: Operand | None, start: int, size: int) -> ir.Value:
    return b.zeros(size) if bias is None else b.value(_part(b, bias, start, size))


def pair(values: Sequence[int] | int) -> list[int]:
    """A number for each axis of an image; one alone is for both."""
    return list(np.broadcast_to(values, 2).tolist())
