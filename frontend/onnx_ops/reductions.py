"""Reductions, running sums, and the order of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...], bool], Tensor]] = {
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.sqrt((x * x).sum(axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: torch.log(x.sum(axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keep),
    "ReduceProd": _product,
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep, dtype=x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keep),
}


def _register(name: str, reduction: Callable[[Tensor, tuple[int, ...], bool], Tensor]) -> None:
    @onnx_op(name, lists="axes")
    def reduce(
        x: Tensor, axes: Sequence[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        if not axes and noop_with_empty_axes:
            return reduction(x.unsqueeze(-1), (-1,), False)
        return reduction(x, tuple(axes or range(x.ndim)), bool(keepdims)) if x.ndim else reduction(x[None], (0,), False)


for _name, _reduction in _REDUCTIONS.items():
    _register(_name, _reduction)


@onnx_op("ArgMax")
def _argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    if select_last_index:
        return x.shape[axis] - 1 - torch.argmax(x.flip(axis), axis, keepdim=bool(keepdims))
    return torch.argmax(x, axis, keepdim=bool(keepdims))


@onnx_op("ArgMin")
def _argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    if select_last_index:
        return x.shape[axis] - 1 - torch.argmin(x.flip(axis), axis, keepdim=bool(keepdims))
    return torch.argmin(x, axis, keepdim=bool(keepdims))


@onnx_op("CumSum", numbers="axis")
def _cumsum(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(torch.cumsum, 0.0, x, axis, exclusive, reverse)


@onnx_op("CumProd", numbers="axis")
def _cumprod(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(torch.cumprod, 1.0, x, axis, exclusive, reverse)


def _running(function: Callable, neutral: float, x: Tensor, axis: int, exclusive: int, reverse: int) -> Tensor:
    x = x.flip(axis) if reverse else x
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), neutral)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    x = function(x, axis)
    return x.flip(axis) if reverse else x


@onnx_op("TopK", numbers="k")
def _topk(x: Tensor, k: int, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, k, axis, bool(largest))
    return values, indices


@onnx_op("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


@onnx_op("LogSoftmax", since=13)
def _log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


@onnx_op("Softmax")
def softmax_of_rows(x: Tensor, *, axis: int = 1) -> Tensor:
    return torch.softmax(x.flatten(axis), -1).reshape(x.shape)


@onnx_op("LogSoftmax")
def _log_softmax_of_rows(x: Tensor, *, axis: int = 1) -> Tensor:
    return torch.log_softmax(x.flatten(axis), -1).reshape(x.shape)


@onnx_op("Hardmax", since=13)
def _hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    places = torch.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis % x.ndim))
    return torch.where(places == x.argmax(axis, keepdim=True), 1.0, 0.0)


@onnx_op("LpNormalization")
def _lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """A vector of zeros stays one."""
    norm = x.abs().sum(axis, True) if p == 1 else torch.sqrt((x * x).sum(axis, True))
    return x / torch.where(norm == 0, 1.0, norm)
