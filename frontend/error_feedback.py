"""Rounds the weights of a layer one after another, so that each takes up what rounding those before it has changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from tosaic.frontend.canonical import complete_arguments
from tosaic.frontend.lowerings.op_quantization import Weighted

_DAMPING = 0.01  # of the mean diagonal, which keeps inputs that samples never show apart from others
_TOGETHER = 1024  # weights of an output that take up each other's errors: the work grows with their cube
_MOST = 2**15  # that an output may have: the time that grows with them
_BLOCK = 128  # weights whose errors reach those behind the block at once
_NOTHING = 2.0**-10  # of a step: a weight below is pruned, and stays 0
_GROUPS = 6  # where the arguments of a convolution have them
_COLUMNS, _FEWEST = 64, 16  # inputs of each weight that are enough, and images that these come from at least


def round_weights(
    node: Node,
    op: Weighted,
    weight: Tensor,
    scale: Tensor,
    limits: tuple[int, int],
    images: Sequence[Tensor],
    centered: bool,
) -> Tensor | None:
    """The weights of a layer on the grid of their scales, such that its results on `images` change least.

    That is GPTQ (Frantar et al. 2022, algorithm 1), weights in the order of their inputs' energy. What is 0 stays 0.

    Args:
        weight: float32, as the layer reads it.
        scale: float32, of each output channel, or one for all; or of each weight.
        limits: the least and the greatest stored integer.
        images: what the layer reads, samples of the same shape.
        centered: whether a bias takes out what the results change by on average.

    Returns:
        float32 of the shape of `weight`. None of a transposed convolution in groups, whose scale channels share. None,
        too, where an output has more weights than `_MOST`, or an input more of them than `_TOGETHER`.
    """
    outputs_first = weight.movedim(op.weight_axis, 0)
    inputs, taps = outputs_first.shape[1], outputs_first[0, 0].numel()
    groups = complete_arguments(node)[_GROUPS] if len(complete_arguments(node)) > _GROUPS else 1
    if (op.weight_axis == 1 and groups != 1) or taps > _TOGETHER or inputs * taps > _MOST:
        return None
    each = (
        scale if scale.shape == weight.shape else scale.expand(len(outputs_first)).reshape(-1, *[1] * (weight.ndim - 1))
    )
    scales = each.double().expand_as(outputs_first)
    together = max(1, _TOGETHER // taps) if groups == 1 else inputs
    rounded = []
    for first in range(0, inputs, together):
        part = outputs_first[:, first : first + together]
        rows = part.reshape(groups, part.shape[0] // groups, -1).double()
        steps = scales[:, first : first + together].reshape(rows.shape)
        read = [image.narrow(op.result_axis, first, part.shape[1]) for image in images] if groups == 1 else images
        products = _products(node, op, part, groups, read, centered)
        rounded.append(_with_feedback(rows, products, steps, limits).reshape(part.shape))
    return torch.cat(rounded, 1).movedim(0, op.weight_axis).float().contiguous()


def enough_images(node: Node, op: Weighted, weight: Tensor) -> int:
    """How many samples of what a layer reads tell how its inputs go together."""
    channels = weight.shape[op.weight_axis]
    columns = max(1, node.meta["val"].numel() // channels)  # of a sample, for each weight of an output
    return max(_FEWEST, math.ceil(_COLUMNS * min(_TOGETHER, weight.numel() // channels) / columns))


def _products(
    node: Node, op: Weighted, weight: Tensor, groups: int, images: Sequence[Tensor], centered: bool
) -> Tensor:
    """[groups, K, K], float64: the mean product of each two of K inputs that an output weights, damped, in any unit.

    Args:
        weight: [outputs, inputs, ...].
    """
    taps, laid_out = weight[0].numel(), _laid_out(node, op, weight, groups)
    count, total, products = 0, torch.zeros(groups, taps, 1).double(), torch.zeros(groups, taps, taps).double()
    unit = max(image.abs().max().item() for image in images) or 1.0  # whose square may be no float32
    for image in images:
        columns = laid_out(image / unit).movedim(op.result_axis, 0).reshape(groups, taps, -1)
        count += columns.shape[-1]
        total += columns.sum(-1, keepdim=True, dtype=torch.float64)
        products += columns @ columns.mT
    mean, moments = total / count, products / count
    energy = moments.diagonal(dim1=1, dim2=2).mean(1).clamp(min=torch.finfo(torch.float32).tiny)
    damping = _DAMPING * energy[:, None, None] * torch.eye(taps).double()
    return moments + damping - (mean @ mean.mT if centered else 0.0)


def _laid_out(node: Node, op: Weighted, weight: Tensor, groups: int) -> Callable[[Tensor], Tensor]:
    """Gives of an image the inputs that an output weights, as channels of a result; a layer of one pixel and no
    padding has its channels so.

    Any other layer lays its inputs out itself: with weights that are one in one place, it returns the input there.
    """
    target: Any = node.target
    rest, taps = complete_arguments(node)[3:], weight[0].numel()
    strides, padding = rest[:2] if rest else ((1,), (0,))
    if groups == 1 and taps == weight.shape[1] and set(strides) == {1} and set(padding) == {0}:
        return lambda image: image
    ones = torch.eye(taps).reshape(taps, *weight.shape[1:]).repeat(groups, *[1] * (weight.ndim - 1))
    ones = ones.movedim(0, op.weight_axis).contiguous()
    return lambda image: target(image, ones, None, *rest)


def _with_feedback(rows: Tensor, products: Tensor, scales: Tensor, limits: tuple[int, int]) -> Tensor:
    """Rows [groups, outputs, K] rounded to multiples of their scales, of the same shape."""
    energy = products.diagonal(dim1=1, dim2=2)
    order = energy.argsort(1, descending=True)
    # Weights of one input, which are rounded at once, lie together.
    waiting, steps = (each.mT.gather(1, order[:, :, None].expand_as(each.mT)) for each in (rows, scales))
    products = products.gather(1, order[:, :, None].expand_as(products))
    products = products.gather(2, order[:, None].expand_as(products))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(products))
    factor = torch.linalg.cholesky(inverse, upper=True)
    kept = waiting.abs() >= _NOTHING * steps
    rounded = torch.empty_like(waiting)
    for first in range(0, waiting.shape[1], _BLOCK):
        block = slice(first, first + _BLOCK)
        inside = factor[:, block, block].mT.contiguous()
        errors = torch.empty_like(waiting[:, block])
        for index in range(errors.shape[1]):
            one = slice(first + index, first + index + 1)
            here = torch.baddbmm(waiting[:, one], inside[:, index : index + 1, :index], errors[:, :index], alpha=-1)
            step = steps[:, one]
            rounded[:, one] = (here / step).round_().clamp_(*limits).mul_(step).mul_(kept[:, one])
            errors[:, index] = ((here - rounded[:, one]) / inside[:, index : index + 1, index : index + 1]).squeeze(1)
        behind = slice(first + _BLOCK, None)
        waiting[:, behind].baddbmm_(factor[:, block, behind].mT, errors, alpha=-1)
    return rounded.gather(1, order.argsort(1)[:, :, None].expand_as(rounded)).mT
