"""Tensors known at compile time, with the quantization they carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tosaic.support.quantization import Quantization


@dataclass(frozen=True)
class Constant:
    """An array, real where `quantization` is None, else the stored integers of a dequantized tensor."""

    array: np.ndarray
    quantization: Quantization | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def axis(self) -> int | None:
        """The quantized axis, where there is one."""
        return self.quantization.axis if self.quantization else None

    def transpose(self, axes: Sequence[int]) -> Constant:
        """The constant with its axes permuted; the quantized axis follows."""
        quantization = self.quantization
        if quantization and quantization.axis is not None:
            quantization = replace(quantization, axis=list(axes).index(quantization.axis))
        return Constant(np.ascontiguousarray(self.array.transpose(axes)), quantization)

    def reshape(self, shape: Sequence[int], axis: int | None = None) -> Constant:
        """The constant in another shape; `axis` is where the quantized axis has gone."""
        quantization = self.quantization
        if quantization and quantization.axis is not None:
            quantization = replace(quantization, axis=axis)
        return Constant(self.array.reshape(shape), quantization)

    def take(self, start: int, size: int, axis: int) -> Constant:
        """`size` indices of `axis` from `start` on, with their scales."""
        index = [slice(None)] * self.array.ndim
        index[axis] = slice(start, start + size)
        quantization = self.quantization
        if quantization and quantization.axis == axis:
            quantization = replace(
                quantization,
                scales=quantization.scales[start : start + size],
                zero_points=quantization.zero_points[start : start + size],
            )
        return Constant(np.ascontiguousarray(self.array[tuple(index)]), quantization)

    def spread(self, steps: Sequence[int]) -> Constant:
        """The constant with its elements `steps` apart along each axis, and stored zeros between."""
        shape = [(size - 1) * step + 1 for size, step in zip(self.array.shape, steps, strict=True)]
        array = np.zeros(shape, self.array.dtype)
        array[tuple(slice(None, None, step) for step in steps)] = self.array
        return Constant(array, self.quantization)
