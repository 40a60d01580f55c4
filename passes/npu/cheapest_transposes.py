"""Each TRANSPOSE in the form that is cheapest on the NPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import COMPARED, Form, convolved, or_least, reading, to_cheapest
from tosaic.passes.permutation import permutation_of
from tosaic.support.functions import inputs_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, rescale, reshape, transpose
from tosaic.support.tosa_ops import MOVING
from tosaic.support.values import behind_reshapes, producer, users

_MOST_PERMUTED = 512
_MOST_MADE = 64
_FULL = 16
_CHEAP = 0.3
_GAIN = 1 / 8
"""That a form must save of what it alone takes, as others stand beside it."""
_IMAGE = 4


@register
@dataclass(frozen=True)
class CheapestTransposes(ModulePass):
    """Write each TRANSPOSE in the form that costs the NPU of `target` the fewest cycles; without one, leave them.

    Dimensions that stay together are one. On int8, a permutation among channels is a 1x1 convolution. One that makes
    channels of rows is a convolution as tall as there are rows. The weights are ones and zeros. Vela makes one op of
    a MAXIMUM and a TRANSPOSE, four elements at a time on an Ethos-U85: that with the least value of the type changes
    nothing. What else is made for a TRANSPOSE, Vela may make one op with that, too, so that it counts.
    """

    name: ClassVar[str] = "cheapest-transposes"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _with_forms, "tosa.transpose", cheap=_CHEAP, gain=_GAIN)


def _with_forms(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    if _is_turned_back(op):
        return [op], []
    before = _made_for(op)
    return [*before, op], [partial(_behind, before, form) for form in _forms(op)]


def _made_for(op: ir.Operation) -> list[ir.Operation]:
    """What computes the operand for this op alone, rescales it and looks it up: Vela may make one op of all."""
    ops: list[ir.Operation] = []
    source = op.operands[0]
    while len(users(source)) == 1 and (maker := producer(source)) is not None and maker.name not in MOVING:
        ops.insert(0, maker)
        if maker.name not in ("tosa.rescale", "tosa.clamp", "tosa.table"):
            break
        source = maker.operands[0]
    return ops


def _behind(before: Sequence[ir.Operation], form: Form, *read: ir.Value) -> ir.Value:
    """A form of a TRANSPOSE with what is made for it."""
    if not before:
        return form(*read)
    known = dict(zip(inputs_of(before), read, strict=True))
    for op in before:
        known[op.results[0]] = rebuild(op, reading(op, known), op.results[0].type)
    return form(known[before[-1].results[0]])


def _forms(op: ir.Operation) -> Iterator[Form]:
    """Other ways to transpose."""
    shape, perm, result = shape_of(op.operands[0]), permutation_of(op), shape_of(op.results[0])
    sizes, order = merged(shape, perm)
    fixed = next((i for i, axis in enumerate(order) if i != axis), None)
    if fixed is None:
        return
    if (sizes, order) != (shape, perm):
        yield partial(transposed, sizes, order, result)
    if str(element_type(op.operands[0])) in COMPARED and len(sizes) <= _IMAGE:
        yield from (partial(_of_greater, sizes, order, result, repeated) for repeated in (False, True))
    if str(element_type(op.operands[0])) != "i8":
        return
    if math.prod(sizes[fixed:]) <= _MOST_PERMUTED:
        yield partial(_among_channels, sizes, order, fixed, result)
    if order in ((1, 0), (1, 0, 2)):
        rows, columns, *depth = sizes
        together = max(n for n in (1, 2, 4, 8) if columns % n == 0 and (n == 1 or rows * n <= _FULL))
        if rows * together * math.prod(depth) <= _MOST_MADE:
            yield partial(_rows_to_channels, (rows, columns // together, together, *depth), result)


def _is_turned_back(op: ir.Operation) -> bool:
    """Whether a product reads it as its second operand: Vela turns that, and makes one of both."""
    read = behind_reshapes(op.results[0])
    return any(user.name == "tosa.matmul" and user.operands[1] == read for user in users(read))


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


def _of_greater(
    sizes: tuple[int, ...], order: tuple[int, ...], result: Sequence[int], repeated: bool, x: ir.Value
) -> ir.Value:
    """The transpose of the greater of `x` and the least value, which stands for all or for each of the first places."""
    before = (1,) * (_IMAGE - len(sizes))
    image = reshape(x, (*before, *sizes))
    least = (*before, sizes[0] if repeated else 1, *(1 for _ in sizes[1:]))
    perm = (*range(len(before)), *(len(before) + place for place in order))
    return reshape(transpose(or_least(least, image), perm), result)


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
