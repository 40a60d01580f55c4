"""Products of matrices, and transforms that are products."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op
from tosaic.support.errors import ModelError


@onnx_op("Einsum")
def _einsum(*tensors: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *tensors)


@onnx_op("MatMul")
def _matmul(x: Tensor, y: Tensor) -> Tensor:
    return torch.matmul(x, y)


@onnx_op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    a = a.t() if transA else a
    if alpha == 1.0 and beta == 1.0 and (c is None or c.ndim == 1):
        return F.linear(a, b if transB else b.t(), c)
    product = torch.matmul(a, b.t() if transB else b) * alpha
    return product if c is None else product + c * beta


@onnx_op("Det")
def _det(x: Tensor) -> Tensor:
    """By the first row (Laplace), for matrices of up to 4 rows."""
    size = x.shape[-1]
    if size > 4:
        raise ModelError(f"the determinant of a matrix of {size} rows has no lowering", why="4 are the most")
    if size == 1:
        return x[..., 0, 0]
    columns = x[..., 1:, :].unbind(-1)
    minors = [torch.stack(columns[:number] + columns[number + 1 :], -1) for number in range(size)]
    terms = [x[..., 0, column] * _det(minor) for column, minor in enumerate(minors)]
    return sum(terms[2::2], terms[0]) - sum(terms[3::2], terms[1])


@onnx_op("DFT", since=20, numbers="dft_length axis")
def _dft(
    x: Tensor, dft_length: int | None = None, axis: int | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """Numbers are complex where the last axis has two elements, as those of the result are."""
    return _fourier(x, x.ndim - 2 if axis is None else axis % x.ndim, dft_length, bool(inverse), bool(onesided))


@onnx_op("DFT", numbers="dft_length")
def _dft_of_axis(
    x: Tensor, dft_length: int | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return _fourier(x, axis % x.ndim, dft_length, bool(inverse), bool(onesided))


def _fourier(x: Tensor, axis: int, length: int | None, inverse: bool, onesided: bool) -> Tensor:
    given = x.shape[axis]
    if inverse and onesided:
        return _from_one_side(x, axis, length or 2 * (given - 1))
    length = length or given
    x = x.narrow(axis, 0, min(given, length)).movedim(axis, -2)
    rotations = np.outer(np.arange(x.shape[-2]), np.arange(length // 2 + 1 if onesided else length)) / length
    angles = 2 * math.pi * rotations * (1 if inverse else -1)
    scale = 1 / length if inverse else 1
    real, imaginary = (torch.from_numpy((f(angles) * scale).astype(np.float32)) for f in (np.cos, np.sin))
    parts = [part[..., None, :] for part in x.unbind(-1)]
    found = [torch.matmul(parts[0], real), torch.matmul(parts[0], imaginary)]
    if len(parts) == 2:
        found = [found[0] - torch.matmul(parts[1], imaginary), found[1] + torch.matmul(parts[1], real)]
    return torch.stack([part.squeeze(-2) for part in found], -1).movedim(-2, axis)


def _from_one_side(x: Tensor, axis: int, length: int) -> Tensor:
    """The real signal whose frequencies from 0 up are given; those between the ends stand for two."""
    count = length // 2 + 1
    real, imaginary = x.narrow(axis, 0, min(x.shape[axis], count)).movedim(axis, -2).unbind(-1)
    numbers = np.arange(real.shape[-1])
    weights = np.where((numbers == 0) | (2 * numbers == length), 1, 2) / length
    angles = 2 * math.pi * np.outer(numbers, np.arange(length)) / length
    cosines, sines = (torch.from_numpy((f(angles) * weights[:, None]).astype(np.float32)) for f in (np.cos, np.sin))
    signal = torch.matmul(real[..., None, :], cosines) - torch.matmul(imaginary[..., None, :], sines)
    return signal.squeeze(-2)[..., None].movedim(-2, axis)


@onnx_op("STFT", numbers="frame_step frame_length")
def _stft(
    signal: Tensor,
    frame_step: int,
    window: Tensor | None = None,
    frame_length: int | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    signal = signal if signal.ndim == 3 else signal[..., None]
    length = frame_length if frame_length is not None else window.shape[0] if window is not None else signal.shape[1]
    starts = np.arange(0, signal.shape[1] - length + 1, frame_step)
    index = torch.from_numpy((starts[:, None] + np.arange(length)).reshape(-1))
    frames = signal.index_select(1, index).reshape(signal.shape[0], len(starts), length, signal.shape[2])
    return _fourier(frames if window is None else frames * window[:, None], 2, None, False, bool(onesided))
