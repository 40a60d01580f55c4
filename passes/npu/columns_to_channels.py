"""Convolutions of few channels read neighboring columns as channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, copied, repeated, rescaled, to_cheapest
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape
from tosaic.support.values import producer, users

_FULL = 16
"""Channels that fill the NPU's reads; more would only add zeros."""
_MOST_MADE = 1024
"""Channels of a form's result."""


@register
@dataclass(frozen=True)
class ColumnsToChannels(ModulePass):
    """Write each CONV2D of few channels, with its RESCALE, in the form that costs the NPU of `target` the fewest
    cycles; without one, leave them.

    Ethos-U multiplies 8 or more channels at a time, whether they are there or not. Where neighboring columns are
    channels it has them. The kernel then makes one or several columns of the result at once, as channels too. Its
    weights are zero where a column is not read.
    """

    name: ClassVar[str] = "columns-to-channels"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.rescale")


@dataclass(frozen=True)
class _Window:
    """How a kernel moves along the columns of an image whose columns go `read` at a time, `made` results at a time.

    Args:
        width, results: columns of the image and of the result.
        kernel, dilation, stride, pad: of the convolution, along the columns; `pad` is at the left.
    """

    width: int
    results: int
    kernel: int
    dilation: int
    stride: int
    pad: int
    read: int
    made: int

    @property
    def step(self) -> int:
        """Groups of columns from one group of results to the next."""
        return self.made * self.stride // self.read

    @property
    def groups_before(self) -> int:
        """Groups of padding at the left."""
        return -(-self.pad // self.read)

    @property
    def taps(self) -> int:
        """Groups that a group of results reads."""
        last = (self.made - 1) * self.stride - self.pad + (self.kernel - 1) * self.dilation
        return last // self.read + self.groups_before + 1

    @property
    def groups_behind(self) -> int:
        """Groups of padding at the right."""
        return (self.results // self.made - 1) * self.step + self.taps - self.width // self.read - self.groups_before

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Weights (outputs, rows, columns, depth) as (made * outputs, rows, taps, read * depth)."""
        outputs, rows, _, depth = weights.shape
        spread = np.zeros((self.made, outputs, rows, self.taps * self.read, depth), weights.dtype)
        for result, column in np.ndindex(self.made, self.kernel):
            place = result * self.stride + column * self.dilation + self.groups_before * self.read - self.pad
            spread[result, :, :, place] = weights[:, :, column]
        return spread.reshape(self.made * outputs, rows, self.taps, self.read * depth)


def _forms(rescale: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    op = producer(rescale.operands[0], "tosa.conv2d")
    if op is None or len(users(op.results[0])) > 1 or str(element_type(op.operands[1])) != "i8":
        return [rescale], []
    if constant_value(op.operands[1]) is None or shape_of(op.operands[0])[-1] >= _FULL:
        return [rescale], []
    return [op, rescale], [partial(_folded, op, rescale, window) for window in _windows(op)]


def _windows(op: ir.Operation) -> Iterator[_Window]:
    _, _, width, depth = shape_of(op.operands[0])
    *_, results, outputs = shape_of(op.results[0])
    kernel, (_, stride), (_, dilation) = shape_of(op.operands[1])[2], ints_of(op, "stride"), ints_of(op, "dilation")
    for made in range(1, min(results, _MOST_MADE // outputs) + 1):
        read = made * stride
        if read == 1 or results % made or width % read or read * depth > _FULL:
            continue
        yield _Window(width, results, kernel, dilation, stride, ints_of(op, "pad")[2], read, made)


def _folded(op: ir.Operation, rescale: ir.Operation, window: _Window, x: ir.Value) -> ir.Value:
    batch, height, width, depth = shape_of(x)
    _, tall, results, outputs = shape_of(op.results[0])
    weights = constant_value(op.operands[1])
    assert weights is not None
    _, _, bias, *zero_points = op.operands
    groups = reshape(x, (batch, height, width // window.read, window.read * depth))
    operands = [groups, constant(window.spread(weights)), repeated(bias, window.made), *copied(zero_points)]
    image = (batch, tall, results // window.made, window.made * outputs)
    (top, bottom, *_), (down, _), (apart, _) = (ints_of(op, name) for name in ("pad", "stride", "dilation"))
    sums = emit(
        "conv2d", operands, image, element_type(op.results[0]),
        pad=(top, bottom, window.groups_before, window.groups_behind), stride=(down, window.step), dilation=(apart, 1),
        acc_type=op.attributes["acc_type"],
    )  # fmt: skip
    return reshape(rescaled(rescale, sums, window.made), shape_of(op.results[0]))
