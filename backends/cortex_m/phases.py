"""TRANSPOSE_CONV2D as one convolution of stride 1, which gives the results between two inputs side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.support.attributes import ints_of
from tosaic.support.mlir import constant, constant_shape, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape, sliced, transpose


@dataclass(frozen=True)
class Axis:
    """Rows or columns: result `stride * (i + t) + p + before` takes weight `stride * t + p` of input i.

    Args:
        size, kernel, result: how many there are of the inputs, of the weights and of the results.
    """

    size: int
    kernel: int
    stride: int
    before: int
    result: int

    @property
    def taps(self) -> int:
        """Inputs of which a result is made."""
        return -(-self.kernel // self.stride)

    @property
    def first(self) -> int:
        """The group of results, `stride` of them, with which they begin."""
        return -self.before // self.stride

    @property
    def groups(self) -> int:
        return (self.result - 1 - self.before) // self.stride - self.first + 1

    @property
    def pad(self) -> tuple[int, int]:
        """Inputs that groups read before the first, and behind the last."""
        return self.taps - 1 - self.first, self.first + self.groups - self.size

    @property
    def cropped(self) -> int:
        """Results of the first group that come before the first."""
        return -self.before - self.first * self.stride


def by_phases(op: ir.Operation) -> ir.Value | None:
    """What takes the place of a TRANSPOSE_CONV2D; None where its weights are not known."""
    x, kernel, bias, *zeros = op.operands
    weights, zero = constant_value(kernel), constant_value(zeros[1])
    if weights is None or zero is None:
        return None
    n, *results, outputs = whole = shape_of(op.results[0])
    sizes = shape_of(x)[1:3], weights.shape[1:3], ints_of(op, "stride"), ints_of(op, "out_pad")[::2], results
    down, along = axes = [Axis(*each) for each in zip(*sizes, strict=True)]
    phases, kind = down.stride * along.stride, element_type(op.results[0])
    if shape_of(bias) != (1,):
        bias = emit("tile", [bias, constant_shape([phases])], (phases * outputs,), element_type(bias))
    operands = [x, constant(_arranged(weights, axes, int(zero.item()))), bias, *zeros]
    window = {
        "pad": [*down.pad, *along.pad],
        "stride": (1, 1),
        "dilation": (1, 1),
        "acc_type": op.attributes["acc_type"],
    }
    y = emit("conv2d", operands, (n, down.groups, along.groups, phases * outputs), kind, **window)
    y = reshape(y, (n, down.groups, along.groups, down.stride, along.stride, outputs))
    y = transpose(y, (0, 1, 3, 2, 4, 5))
    y = reshape(y, (n, down.groups * down.stride, along.groups * along.stride, outputs))
    return sliced(y, [0, down.cropped, along.cropped, 0], whole)


def _arranged(weights: np.ndarray, axes: list[Axis], zero: int) -> np.ndarray:
    """(row of a group x column of a group x outputs, taps, taps, channels) of weights (outputs, rows, columns,
    channels)."""
    down, along = axes
    outputs, _, _, channels = weights.shape
    missing = [(0, 0), *((0, axis.taps * axis.stride - axis.kernel) for axis in axes), (0, 0)]
    padded = np.pad(weights, missing, constant_values=zero)
    split = padded.reshape(outputs, down.taps, down.stride, along.taps, along.stride, channels)
    return split[:, ::-1, :, ::-1].transpose(2, 4, 0, 1, 3, 5).reshape(-1, down.taps, along.taps, channels)
