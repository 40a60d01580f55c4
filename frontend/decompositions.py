"""Ops without a lowering, taken apart into ops that have one: by torch's own decompositions, or by those below."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Node

from tosaic.frontend.canonical import DEQUANTIZE, QUANTIZE, canonical, computed
from tosaic.frontend.lowerings.registry import registered
from tosaic.frontend.origin import naming_ops, origin
from tosaic.support.errors import ModelError

aten = torch.ops.aten
_ROUNDS = 8  # what an op is made of may have to be taken apart in turn


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program with every op without a lowering taken apart; all others stay whole.

    Raises:
        ModelError: ops that cannot be compiled, all of them, with the user's lines.
    """
    given = unknown = unknown_ops(program)
    for _ in range(_ROUNDS):
        table: dict[Any, Callable] = {node.target: made for node in unknown if (made := _decomposition(node.target))}
        if not table:
            break
        with naming_ops("decomposition"):
            program = program.run_decompositions(table)
        unknown = unknown_ops(program)
    if unknown:
        lines = {node.meta.get("stack_trace") for node in unknown}
        _refuse([node for node in given if node.meta.get("stack_trace") in lines] or unknown)
    return program


def importable(program: ExportedProgram) -> ExportedProgram:
    """The program itself, or in its canonical form, where it holds ops without a lowering: taken apart."""
    return decomposed(canonical(program)) if unknown_ops(program) else program


def _refuse(nodes: list[Node]) -> None:
    raise ModelError(
        f"no lowering for {', '.join(sorted({str(node.target) for node in nodes}))}",
        where="\n      ".join(dict.fromkeys(str(origin(node)) for node in nodes)),
        hint="write it with other ops, or add a lowering under tosaic/frontend/lowerings",
    )


def unknown_ops(program: ExportedProgram) -> list[Node]:
    """The nodes in use that depend on the user's inputs and have no lowering."""
    known = {*registered(), *QUANTIZE, *DEQUANTIZE, operator.getitem}
    return [node for node in computed(program) if node.target not in known]


def _decomposition(target: Any) -> Callable | None:
    return _OWN.get(target) or _torchs().get(target)


@cache
def _torchs() -> dict[Any, Callable]:
    return dict(default_decompositions().items())


_OWN: dict[Any, Callable] = {}


def _decomposes(*targets: Any) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        _OWN.update(dict.fromkeys(targets, function))
        return function

    return register


@_decomposes(aten.group_norm.default)
def _group_norm(
    x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, _cudnn: bool = True
) -> Tensor:
    """Layer norm over each group, which is quantized as one unit (Wu and He 2018, section 3.1)."""
    batch, channels = x.shape[:2]
    normal = F.layer_norm(x.reshape(batch, groups, -1), (x[0].numel() // groups,), eps=eps).reshape(x.shape)
    shape = (1, channels) + (1,) * (x.ndim - 2)
    if weight is not None:
        normal = normal * weight.reshape(shape)
    return normal if bias is None else normal + bias.reshape(shape)


@_decomposes(aten.instance_norm.default)
def _instance_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None,
    use_input_stats: bool, _momentum: float, eps: float, _cudnn: bool,
) -> Tensor:  # fmt: skip
    if use_input_stats or mean is None or variance is None:
        return _group_norm(x, x.shape[1], weight, bias, eps)
    return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)


@_decomposes(aten.log_softmax.int, aten._log_softmax.default)
def _log_softmax(x: Tensor, dim: int, _option: Any = None) -> Tensor:
    """x - max - log sum exp(x - max), of ops that are quantized each."""
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@_decomposes(aten.softplus.default)
def _softplus(x: Tensor, beta: float = 1.0, _threshold: float = 20.0) -> Tensor:
    """log(1 + exp(x)) as a function without steps, so that one TABLE of chords holds it."""
    x = x * beta
    return (torch.relu(x) + torch.log(1 + torch.exp(-x.abs()))) / beta


@_decomposes(aten.prelu.default)
def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    slope = weight if weight.numel() == 1 else weight.reshape(-1, *(1,) * (x.ndim - 2))
    return torch.relu(x) + torch.clamp_max(x, 0.0) * slope


@_decomposes(aten.cumsum.default)
def _cumsum(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """A product with a triangle of ones."""
    ones = torch.ones(x.shape[dim], x.shape[dim], dtype=x.dtype).tril()
    return F.linear(x.transpose(dim, -1), ones).transpose(dim, -1)


@_decomposes(aten.var.correction)
def _var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    axes = list(range(x.ndim)) if dim is None else list(dim)
    count = math.prod(x.shape[axis] for axis in axes)
    centered = x - x.mean(axes, keepdim=True)
    freedom = count - (1 if correction is None else correction)
    return (centered * centered).mean(axes, keepdim=keepdim) * (count / freedom)


@_decomposes(aten.std.correction)
def _std(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _var(x, dim, correction=correction, keepdim=keepdim).sqrt()


@_decomposes(aten.linalg_vector_norm.default)
def _vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    axes = list(range(x.ndim)) if dim is None else list(dim)
    if order == 1:
        return x.abs().sum(axes, keepdim)
    if order == math.inf:
        return x.abs().amax(axes, keepdim)
    if order == 2:
        return (x * x).sum(axes, keepdim).sqrt()
    return x.abs().pow(order).sum(axes, keepdim).pow(1 / order)


@_decomposes(aten.conv_transpose1d.default)
def _conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,), groups: int = 1, dilation: Sequence[int] = (1,),
) -> Tensor:  # fmt: skip
    row = F.conv_transpose2d(
        x.unsqueeze(2), weight.unsqueeze(2), bias, (1, *stride), (0, *padding), (0, *output_padding), groups,
        (1, *dilation),
    )  # fmt: skip
    return row.squeeze(2)


@_decomposes(aten.roll.default)
def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        return _roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        at = -shift % size
        x = torch.cat([x.narrow(dim, at, size - at), x.narrow(dim, 0, at)], dim)
    return x


@_decomposes(aten.slice_scatter.default)
def _slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """The rows before, the new ones, and the rows behind; with a step, each new row before the old ones it skips to."""
    first, last, step = slice(start, end, step).indices(x.shape[dim])
    rows = [source.narrow(dim, (at - first) // step, 1) if at in range(first, last, step) else x.narrow(dim, at, 1)
            for at in range(first, last)]  # fmt: skip
    parts = [x.narrow(dim, 0, first), *([source] if step == 1 else rows), x.narrow(dim, last, x.shape[dim] - last)]
    return torch.cat([part for part in parts if part.shape[dim]], dim)


@_decomposes(aten.full_like.default)
def _full_like(x: Tensor, number: float, *, dtype: torch.dtype | None = None, **_options: Any) -> Tensor:
    return torch.full(x.shape, number, dtype=dtype or x.dtype)


@_decomposes(aten.clamp.Tensor)
def _clamp_tensor(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@_decomposes(aten.lerp.Scalar)
def _lerp(x: Tensor, end: Tensor, weight: float) -> Tensor:
    return x * (1 - weight) + end * weight


@_decomposes(aten.pixel_shuffle.default)
def _pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """Channels last, as two transpositions of few axes: the channels within a pixel, then the rows of each line."""
    if x.ndim == 3:
        return _pixel_shuffle(x[None], factor)[0]
    n, c, h, w = x.shape
    channels, square = c // factor**2, factor**2
    pixels = x.permute(0, 2, 3, 1).reshape(n * h * w, channels, square).transpose(1, 2)
    lines = pixels.reshape(n * h, w, factor, factor * channels).transpose(1, 2)
    return lines.reshape(n, h * factor, w * factor, channels).permute(0, 3, 1, 2)


@_decomposes(aten.pixel_unshuffle.default)
def _pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    if x.ndim == 3:
        return _pixel_unshuffle(x[None], factor)[0]
    n, c, h, w = x.shape[0], x.shape[1], x.shape[2] // factor, x.shape[3] // factor
    lines = x.permute(0, 2, 3, 1).reshape(n * h, factor, w, factor * c).transpose(1, 2)
    pixels = lines.reshape(n * h * w, factor**2, c).transpose(1, 2)
    return pixels.reshape(n, h, w, c * factor**2).permute(0, 3, 1, 2)


@_decomposes(aten.channel_shuffle.default)
def _channel_shuffle(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(n * h * w, groups, c // groups).transpose(1, 2)
    return pixels.reshape(n, h, w, c).permute(0, 3, 1, 2)


@_decomposes(aten.sign.default)
def _sign(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, torch.where(x < 0, -1.0, 0.0))


@_decomposes(aten.round.default)
def _round(x: Tensor) -> Tensor:
    """Half to even."""
    below = torch.floor(x)
    rest = x - below
    odd = below - 2 * torch.floor(below * 0.5) > 0.5
    return torch.where(torch.logical_or(rest > 0.5, torch.logical_and(rest >= 0.5, odd)), below + 1.0, below)


@_decomposes(aten.trunc.default)
def _trunc(x: Tensor) -> Tensor:
    return torch.where(x < 0, torch.ceil(x), torch.floor(x))


@_decomposes(aten.fmod.Scalar)
def _fmod(x: Tensor, divisor: float) -> Tensor:
    return x - _trunc(x / divisor) * divisor


@_decomposes(aten.remainder.Scalar)
def _remainder(x: Tensor, divisor: float) -> Tensor:
    return x - torch.floor(x / divisor) * divisor


@_decomposes(aten.tan.default)
def _tan(x: Tensor) -> Tensor:
    return torch.sin(x) / torch.cos(x)


@_decomposes(aten.sinh.default)
def _sinh(x: Tensor) -> Tensor:
    return (torch.exp(x) - torch.exp(-x)) * 0.5


@_decomposes(aten.cosh.default)
def _cosh(x: Tensor) -> Tensor:
    return (torch.exp(x) + torch.exp(-x)) * 0.5


@_decomposes(aten.expm1.default)
def _expm1(x: Tensor) -> Tensor:
    return torch.exp(x) - 1.0


@_decomposes(aten.log1p.default)
def _log1p(x: Tensor) -> Tensor:
    return torch.log(x + 1.0)


@_decomposes(aten.log2.default)
def _log2(x: Tensor) -> Tensor:
    return torch.log(x) * (1 / math.log(2))


@_decomposes(aten.log10.default)
def _log10(x: Tensor) -> Tensor:
    return torch.log(x) * (1 / math.log(10))


@_decomposes(aten.exp2.default)
def _exp2(x: Tensor) -> Tensor:
    return torch.exp(x * math.log(2))
