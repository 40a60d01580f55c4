"""Drop the taps of a convolution that read nothing but padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import RANGES
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.tosa_builder import rebuild, sliced

_HEIGHT = {"tosa.conv2d": 1, "tosa.depthwise_conv2d": 0}
"""The axis of the weights along which the kernel has its height; that of its width is the next."""


@register
@dataclass(frozen=True)
class DropPaddingTaps(ModulePass):
    """Drop the outer rows and columns of a kernel that meet padding at every result."""

    name: ClassVar[str] = "drop-padding-taps"
    phase: ClassVar[str] = "fuse"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [drop_taps])


@pattern("tosa.conv2d", "tosa.depthwise_conv2d")
def drop_taps(op: ir.Operation) -> Replacement:
    """A 3x3 kernel on one pixel with a pad of 1 is its middle; a kernel that meets padding alone leaves the bias."""
    x, weights, *rest = op.operands
    zero_point = constant_value(rest[1])
    if str(element_type(x)) not in RANGES or zero_point is None:
        return None
    axes = [_WindowAxis.of(op, number) for number in range(2)]
    used = [axis.used() for axis in axes]
    if [len(taps) for taps in used] == [axis.taps for axis in axes]:
        return None
    if not all(used):
        return _of_nothing(op, zero_point)
    if str(element_type(weights)) == "i4" and constant_value(weights) is None:  # which TOSA cannot slice
        return None
    pixels, kept = zip(*(axis.of_taps(taps) for axis, taps in zip(axes, used, strict=True)), strict=True)
    operands = [_some(x, 1, pixels), _some(weights, _HEIGHT[op.name], used), *rest]
    return rebuild(
        op,
        operands,
        op.results[0].type,
        pad=[amount for axis in kept for amount in axis.pad],
        stride=[axis.stride for axis in kept],
        dilation=[axis.dilation for axis in kept],
    )


def _of_nothing(op: ir.Operation, zero_point: np.ndarray) -> ir.Value:
    """The convolution of zero points, as many as there are results, with one tap of 0."""
    x, weights, *rest = op.operands
    (n, height, width, _), (*_, c) = shape_of(op.results[0]), shape_of(x)
    dims = list(shape_of(weights))
    dims[_HEIGHT[op.name] : _HEIGHT[op.name] + 2] = 1, 1
    pixels = constant(np.full((n, height, width, c), zero_point, numpy_dtype(element_type(x))))
    tap = constant(np.zeros(dims, np.int8), element_type(weights))
    return rebuild(op, [pixels, tap, *rest], op.results[0].type, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))


@dataclass(frozen=True)
class _WindowAxis:
    """One axis of a convolution: the pixels it has, the taps of the kernel, the pad before and behind."""

    size: int
    taps: int
    pad: tuple[int, int]
    stride: int
    dilation: int
    results: int

    @staticmethod
    def of(op: ir.Operation, number: int) -> _WindowAxis:
        """The height (0) or the width (1)."""
        x, weights, *_ = op.operands
        before, after = ints_of(op, "pad")[2 * number :][:2]
        return _WindowAxis(
            shape_of(x)[1 + number],
            shape_of(weights)[_HEIGHT[op.name] + number],
            (before, after),
            ints_of(op, "stride")[number],
            ints_of(op, "dilation")[number],
            shape_of(op.results[0])[1 + number],
        )

    def used(self) -> range:
        """From the first tap that reads a pixel for any result to the last."""
        at = np.arange(self.taps)[:, None] * self.dilation + np.arange(self.results) * self.stride - self.pad[0]
        reading = np.flatnonzero(((at >= 0) & (at < self.size)).any(1))
        return range(reading[0], reading[-1] + 1) if len(reading) else range(0)

    def of_taps(self, taps: range) -> tuple[range, _WindowAxis]:
        """(pixels, axis): what of the pixels these taps can read, and the axis with these alone."""
        before = self.pad[0] - taps.start * self.dilation
        after = self.pad[1] - (self.taps - taps.stop) * self.dilation
        pixels = range(max(0, -before), self.size - max(0, -after))
        dilation = self.dilation if len(taps) > 1 else 1
        stride = self.stride if self.results > 1 else 1
        return pixels, _WindowAxis(
            len(pixels), len(taps), (max(0, before), max(0, after)), stride, dilation, self.results
        )


def _some(value: ir.Value, axis: int, ranges: Sequence[range]) -> ir.Value:
    """A tensor without what is outside of the ranges along `axis` and the next."""
    shape = list(shape_of(value))
    begin, size = [0] * 4, list(shape)
    for number, some in enumerate(ranges):
        begin[axis + number], size[axis + number] = some.start, len(some)
    if size == shape:
        return value
    known = constant_value(value)
    if known is not None:
        return constant(known[tuple(map(slice, begin, np.add(begin, size)))].copy(), element_type(value))
    return sliced(value, begin, size)
