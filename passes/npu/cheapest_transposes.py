"""Each TRANSPOSE in the form that is cheapest on the NPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, convolved, to_cheapest
from tosaic.passes.permutation import permutation_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import rescale, reshape, transpose

_MOST_PERMUTED = 512
_MOST_MADE = 64
_FULL = 16
_CHEAP = 0.7


@register
@dataclass(frozen=True)
class CheapestTransposes(ModulePass):
    """Write each TRANSPOSE in the form that costs the NPU of `target` the fewest cycles; without one, leave them.

    Dimensions that stay together are one. On int8, a permutation among channels is a 1x1 convolution. One that makes
    channels of rows is a convolution as tall as there are rows. The weights are ones and zeros.
    """

    name: ClassVar[str] = "cheapest-transposes"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, lambda op: ([op], list(_forms(op))), "tosa.transpose", cheap=_CHEAP)


def _forms(op: ir.Operation) -> Iterator[Form]:
    """Other ways to transpose."""
    shape, perm, result = shape_of(op.operands[0]), permutation_of(op), shape_of(op.results[0])
    sizes, order = merged(shape, perm)
    fixed = next((i for i, axis in enumerate(order) if i != axis), None)
    if fixed is None:
        return
    if (sizes, order) != (shape, perm):
        yield partial(transposed, sizes, order, result)
    if str(element_type(op.operands[0])) != "i8":
        return
    if math.prod(sizes[fixed:]) <= _MOST_PERMUTED:
        yield partial(_among_channels, sizes, order, fixed, result)
    if order in ((1, 0), (1, 0, 2)):
        rows, columns, *depth = sizes
        together = max(n for n in (1, 2, 4, 8) if columns % n == 0 and (n == 1 or rows * n <= _FULL))
        if rows * together * math.prod(depth) <= _MOST_MADE:
            yield partial(_rows_to_channels, (rows, columns // together, together, *depth), result)


def merged(shape: Sequence[int], perm: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same permutation of fewer dimensions: without those of size 1, and what stays together as one."""
    kept = [axis for axis in perm if shape[axis] != 1]
    place = {axis: index for index, axis in enumerate(sorted(kept))}
    groups: list[list[int]] = []
    for axis in kept:
        if groups and place[groups[-1][-1]] + 1 == place[axis]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    before = sorted(groups)
    return tuple(math.prod(shape[axis] for axis in group) for group in before), tuple(map(before.index, groups))


def transposed(sizes: Sequence[int], order: Sequence[int], result: Sequence[int], x: ir.Value) -> ir.Value:
    """The transpose of `x`, seen with these sizes, in the shape of the result."""
    return reshape(transpose(reshape(x, sizes), order), result)


def _among_channels(
    sizes: tuple[int, ...], order: tuple[int, ...], fixed: int, result: Sequence[int], x: ir.Value
) -> ir.Value:
    """Permute the trailing dimensions, seen as channels."""
    moving = sizes[fixed:]
    source = np.arange(math.prod(moving)).reshape(moving).transpose([axis - fixed for axis in order[fixed:]]).ravel()
    weights = np.zeros((source.size, 1, 1, source.size), np.int8)
    weights[np.arange(source.size), 0, 0, source] = 1
    pixels = math.prod(sizes[:fixed])
    rows = math.isqrt(pixels) if math.isqrt(pixels) ** 2 == pixels else 1
    image = (1, rows, pixels // rows, source.size)
    return reshape(_moved(reshape(x, image), weights, image), result)


def _rows_to_channels(sizes: Sequence[int], result: Sequence[int], x: ir.Value) -> ir.Value:
    """Swap rows and columns of (rows, columns / together, together, depth), `together` columns at a time."""
    rows, columns, together, *depth = sizes
    deep = math.prod(depth)
    weights = np.zeros((together, rows, deep, rows, 1, together, deep), np.int8)
    for column, row, channel in np.ndindex(together, rows, deep):
        weights[column, row, channel, row, 0, column, channel] = 1
    image = reshape(x, (1, rows, columns, together * deep))
    kernel = weights.reshape(together * rows * deep, rows, 1, together * deep)
    return reshape(_moved(image, kernel, (1, 1, columns, together * rows * deep)), result)


def _moved(x: ir.Value, weights: np.ndarray, result: Sequence[int]) -> ir.Value:
    return rescale(convolved(x, weights, result), "i8", [1 << 30], [30])
