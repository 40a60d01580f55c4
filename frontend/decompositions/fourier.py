"""Fourier transforms of fixed size as products with matrices of cosines and sines, one for each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.complex import parts
from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten._fft_r2c.default)
def _of_reals(x: Tensor, axes: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """Of the last axis named, of which half of the results say all, then of the others."""
    *others, last = axes
    size = x.shape[last]
    cosines, sines = _waves(size // 2 + 1 if onesided else size, size, size)
    rows = x.movedim(last, -1)
    result = torch.complex(F.linear(rows, cosines), F.linear(rows, 0.0 - sines)).movedim(-1, last)
    return _transformed(_scaled(result, [size], normalization), others, normalization, forward=True)


@decomposes(aten._fft_c2c.default)
def _transformed(x: Tensor, axes: Sequence[int], normalization: int, forward: bool) -> Tensor:
    for axis in axes:
        cosines, sines = _waves(*[x.shape[axis]] * 3)
        if forward:
            sines = -sines
        rows = torch.cat(parts(x.movedim(axis, -1)), -1)
        real, imaginary = torch.cat([cosines, -sines], 1), torch.cat([sines, cosines], 1)
        x = torch.complex(F.linear(rows, real), F.linear(rows, imaginary)).movedim(-1, axis)
    return _scaled(x, [x.shape[axis] for axis in axes], normalization)


@decomposes(aten._fft_c2r.default)
def _to_reals(x: Tensor, axes: Sequence[int], normalization: int, size: int) -> Tensor:
    """The inverse of `_of_reals`: what stands for two results of a whole transform counts twice."""
    *others, last = axes
    x = _transformed(x, others, normalization, forward=False)
    half = size // 2 + 1
    cosines, sines = _waves(size, half, size)
    number = torch.arange(half)
    counts = torch.where((number == 0) | (2 * number == size), 1.0, 2.0)
    rows = torch.cat(parts(x.movedim(last, -1).narrow(-1, 0, half)), -1)
    result = F.linear(rows, torch.cat([cosines * counts, -sines * counts], 1)).movedim(-1, last)
    return _scaled(result, [size], normalization)


def _waves(rows: int, columns: int, size: int) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi row column / size, [rows, columns] each."""
    rotations = torch.arange(rows).unsqueeze(1) * torch.arange(columns) % size
    angles = rotations.double() * (2 * math.pi / size)
    sines = torch.where(2 * rotations % size == 0, 0.0, torch.sin(angles))  # those of pi are 0, too
    return torch.cos(angles).float(), sines.float()


def _scaled(x: Tensor, sizes: Sequence[int], normalization: int) -> Tensor:
    """As torch numbers it: 0 for none, 1 by the root of the elements' number, 2 by the number."""
    return x * math.prod(sizes) ** (-normalization / 2) if normalization else x
