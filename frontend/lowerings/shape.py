"""What moves data without computing: views, slices, concatenation, gathers, padding, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from torch.fx import Node

from tosaic.frontend.builder import NCHW, NHWC, Builder, Operand, shape
from tosaic.frontend.canonical import arguments
from tosaic.frontend.constant import Constant
from tosaic.frontend.lowerings.op_quantization import Joined, Shared
from tosaic.frontend.lowerings.registry import lowers
from tosaic.frontend.methods import ENTER
from tosaic.frontend.rows import WRITE_ROWS
from tosaic.support import mlir
from tosaic.support.errors import ModelError
from tosaic.support.methods import Entering, note_entering
from tosaic.support.mlir import constant_value, ir
from tosaic.support.values import producer

aten = torch.ops.aten
_MOST_SCALE = 2048  # of RESIZE (TOSA 1.0, RESIZE)
_SLACK = 1e-4  # of a pixel


@lowers(aten.flatten.using_ints, aten._unsafe_view.default, aten.reshape.default, quantized=Shared(moves=True))
@lowers(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, quantized=Shared(moves=True))
@lowers(aten.view.default, aten.unsqueeze.default, quantized=Shared(moves=True))
def reshape(b: Builder, node: Node, x: ir.Value, *_dims: object) -> ir.Value:
    return b.reshape(x, tuple(node.meta["val"].shape))


@lowers(aten.permute.default, quantized=Shared(moves=True))
def permute(b: Builder, node: Node, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    return b.transpose(x, [dim % len(dims) for dim in dims])


@lowers(aten.transpose.int, quantized=Shared(moves=True))
def transpose(b: Builder, node: Node, x: ir.Value, first: int, second: int) -> ir.Value:
    axes = list(range(len(shape(x))))
    axes[first], axes[second] = axes[second], axes[first]
    return b.transpose(x, axes)


@lowers(aten.t.default, quantized=Shared(moves=True))
def t(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    return b.transpose(x, list(range(len(shape(x))))[::-1])


@lowers(aten.expand.default, quantized=Shared(moves=True))
def expand(b: Builder, node: Node, x: ir.Value, *_options: object) -> ir.Value:
    wanted = tuple(node.meta["val"].shape)
    ranked = b.value(b.ranked(x, len(wanted)))
    return b.tile(ranked, [size // have for size, have in zip(wanted, shape(ranked), strict=True)])


@lowers(aten.repeat.default, quantized=Shared())
def repeat(b: Builder, node: Node, x: ir.Value, repeats: Sequence[int]) -> ir.Value:
    return b.tile(b.value(b.ranked(x, len(repeats))), repeats)


@lowers(aten.cat.default, quantized=Joined())
def cat(b: Builder, node: Node, tensors: Sequence[ir.Value], dim: int) -> ir.Value:
    element = b.element(node)
    return b.concat([b.cast(x, element) for x in tensors], dim % len(shape(tensors[0])))


@lowers(aten.stack.default, quantized=Joined())
def stack(b: Builder, node: Node, tensors: Sequence[ir.Value], dim: int) -> ir.Value:
    dims = shape(tensors[0])
    axis = dim % (len(dims) + 1)
    return b.concat([b.reshape(x, (*dims[:axis], 1, *dims[axis:])) for x in tensors], axis)


@lowers(aten.slice.Tensor, quantized=Shared(moves=True))
def slice_(b: Builder, node: Node, x: ir.Value, dim: int, start: int | None, end: int | None, step: int) -> ir.Value:
    axis = dim % len(shape(x))
    first, stop, _ = slice(start, end, step).indices(shape(x)[axis])
    if step == 1:
        return b.narrow(x, axis, first, stop - first)
    return strided(b, x, axis, first, step, node.meta["val"].shape[axis])


def strided(b: Builder, x: ir.Value, axis: int, first: int, step: int, count: int) -> ir.Value:
    """Every `step`-th index: split the axis into rows of `step` and keep the first column."""
    size = shape(x)[axis]
    missing = max(0, first + count * step - size)
    padded = b.pad(x, [(0, missing if i == axis else 0) for i in range(len(shape(x)))])
    rows = b.narrow(padded, axis, first, count * step)
    dims = shape(rows)
    split = b.reshape(rows, (*dims[:axis], count, step, *dims[axis + 1 :]))
    return b.reshape(b.narrow(split, axis + 1, 0, 1), (*dims[:axis], count, *dims[axis + 1 :]))


@lowers(aten.select.int, quantized=Shared(moves=True))
def select(b: Builder, node: Node, x: ir.Value, dim: int, index: int) -> ir.Value:
    axis = dim % len(shape(x))
    return _index(b, x, axis, index % shape(x)[axis])


def _index(b: Builder, x: ir.Value, axis: int, index: int) -> ir.Value:
    return b.reshape(b.narrow(x, axis, index, 1), (*shape(x)[:axis], *shape(x)[axis + 1 :]))


@lowers(aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, quantized=Shared())
def split(b: Builder, node: Node, x: ir.Value, _sizes: object, dim: int) -> tuple[ir.Value, ...]:
    axis = dim % len(shape(x))
    parts, start = [], 0
    for part in node.meta["val"]:
        parts.append(b.narrow(x, axis, start, part.shape[axis]))
        start += part.shape[axis]
    return tuple(parts)


@lowers(aten.unbind.int, quantized=Shared())
def unbind(b: Builder, node: Node, x: ir.Value, dim: int) -> tuple[ir.Value, ...]:
    axis = dim % len(shape(x))
    return tuple(_index(b, x, axis, index) for index in range(shape(x)[axis]))


@lowers(aten.embedding.default, quantized=Shared())
def embedding(b: Builder, node: Node, table: ir.Value, indices: ir.Value, *_options: object) -> ir.Value:
    return _take(b, node, table, 0, indices)


@lowers(aten.index_select.default, quantized=Shared())
def index_select(b: Builder, node: Node, x: ir.Value, dim: int, indices: ir.Value) -> ir.Value:
    rows = b.value(b.ranked(x, 1))
    return b.reshape(_take(b, node, rows, dim % len(shape(rows)), indices), tuple(node.meta["val"].shape))


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor, raw=("indices",), quantized=Shared())
def index(b: Builder, node: Node, x: ir.Value, indices: Sequence[Operand | None]) -> ir.Value:
    """The indexed axes are read as one; where they are no neighbors, they come first, as in PyTorch."""
    if any(one.meta["val"].dtype == torch.bool for one in arguments(node)[1] if one is not None):
        raise ModelError("an index of booleans cannot be compiled", hint="its result has no static shape")
    given = list(indices)
    axes = [axis for axis, numbers in enumerate(given) if numbers is not None]
    if axes != list(range(axes[0], axes[-1] + 1)):
        others = [axis for axis in range(len(shape(x))) if axis not in axes]
        x, given, axes = b.transpose(x, [*axes, *others]), [given[axis] for axis in axes], list(range(len(axes)))
    dims = shape(x)
    sizes = [dims[axis] for axis in axes]
    joined = b.reshape(x, (*dims[: axes[0]], math.prod(sizes), *dims[axes[-1] + 1 :]))
    return _take(b, node, joined, axes[0], _position(b, [given[axis] for axis in axes], sizes))


def _position(b: Builder, indices: Sequence[Operand | None], sizes: Sequence[int]) -> ir.Value:
    """Numbers along several axes as numbers along one; negative ones count from the end."""
    total: Operand | None = None
    for one, size in zip(indices, sizes, strict=True):
        if isinstance(one, Constant) and (total is None or isinstance(total, Constant)):
            total = Constant(one.array % size + (total.array * size if total else 0))
            continue
        here = b.value(Constant((one.array % size).astype(np.int32)) if isinstance(one, Constant) else one)
        if not isinstance(one, Constant):
            negative = b.pointwise("greater", 0, here, element=b.bool)
            here = b.pointwise("select", negative, b.pointwise("add", here, size), here, element=b.i32)
        before = None if total is None else b.pointwise("mul", b.value(total), size)
        total = here if before is None else b.pointwise("add", before, here)
    assert total is not None
    return b.value(total)


@lowers(aten.flip.default, quantized=Shared())
def flip(b: Builder, node: Node, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    for dim in dims:
        x = b.reverse(x, dim % len(shape(x)))
    return x


def _take(b: Builder, node: Node, x: ir.Value, axis: int, indices: ir.Value) -> ir.Value:
    """Whole rows of one axis by `tosa.gather`, with the axis brought to the front."""
    dims = shape(x)
    others = [i for i in range(len(dims)) if i != axis]
    front = b.transpose(x, [axis, *others])
    width = math.prod(dims[i] for i in others)
    count = math.prod(shape(indices))
    rows = b.gather(b.reshape(front, (1, dims[axis], width)), b.reshape(indices, (1, count)))
    moved = b.reshape(rows, (*shape(indices), *(dims[i] for i in others)))
    rank = len(shape(indices))
    return b.transpose(moved, [*range(rank, rank + axis), *range(rank), *range(rank + axis, rank + len(others))])


@lowers(aten.gather.default, quantized=Shared())
def gather(b: Builder, node: Node, x: ir.Value, dim: int, indices: ir.Value, *_options: object) -> ir.Value:
    """Along the last axis rows of one element; along another one, single elements of the flat tensor."""
    result = shape(indices)
    x, indices = b.value(b.ranked(x, 1)), b.value(b.ranked(indices, 1))
    dims, own = shape(x), shape(indices)
    axis = dim % len(dims)
    if own[:axis] == dims[:axis] and math.prod(own[axis + 1 :]) == math.prod(dims[axis + 1 :]) == 1:
        n, k = math.prod(dims[:axis]), dims[axis]
        picked = b.gather(b.reshape(x, (n, k, 1)), b.reshape(indices, (n, own[axis])))
        return b.reshape(picked, result)
    steps = [0 if other == axis else math.prod(dims[other + 1 :]) for other in range(len(dims))]
    places = np.tensordot(steps, np.indices(own), 1)
    at = b.pointwise("add", b.pointwise("mul", indices, math.prod(dims[axis + 1 :])), Constant(places))
    picked = b.gather(b.reshape(x, (1, math.prod(dims), 1)), b.reshape(at, (1, math.prod(own))))
    return b.reshape(picked, result)


@lowers(WRITE_ROWS, quantized=Joined())
def write_rows(b: Builder, node: Node, x: ir.Value, dim: int, indices: ir.Value, rows: ir.Value) -> ir.Value:
    """A SCATTER of all rows where their places differ, else one for each, one behind the other: to none may two rows of
    one place be given."""
    dims = shape(x)
    n, k, c = math.prod(dims[:dim]), dims[dim], math.prod(dims[dim + 1 :])
    (count,) = shape(indices)
    written, source = b.reshape(x, (n, k, c)), b.reshape(rows, (n, count, c))
    if _differ(indices):
        at = b.tile(b.reshape(indices, (1, count)), (n, 1))
        return b.reshape(b.op("scatter", [written, at, source], (n, k, c)), dims)
    for number in range(count):
        at = b.tile(b.reshape(b.narrow(indices, 0, number, 1), (1, 1)), (n, 1))
        written = b.op("scatter", [written, at, b.narrow(source, 1, number, 1)], (n, k, c))
    return b.reshape(written, dims)


def _differ(indices: ir.Value) -> bool:
    """Whether it is plain that no two are equal: one number is added to different ones."""
    if math.prod(shape(indices)) == 1:
        return True
    op = producer(indices, "tosa.add", "tosa.reshape")
    while op is not None and op.name == "tosa.reshape":
        op = producer(op.operands[0], "tosa.add", "tosa.reshape")
    if op is None:
        return False
    for one, other in (op.operands, reversed(op.operands)):
        known = constant_value(one)
        if known is not None and math.prod(shape(other)) == 1:
            return len(np.unique(known)) == known.size
    return False


@lowers(ENTER, quantized=Shared(moves=True))
def enter(b: Builder, node: Node, x: ir.Value, method: int, state: int) -> ir.Value:
    entered = b.op("identity", [x], shape(x))
    note_entering(entered.owner.operation, Entering(method, state))
    return entered


@lowers(aten.constant_pad_nd.default, quantized=Shared())
def constant_pad(b: Builder, node: Node, x: ir.Value, pad: Sequence[int], number: float) -> ir.Value:
    rank = len(shape(x))
    pairs = [(0, 0)] * (rank - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    start = [max(0, -before) for before, _ in pairs]
    size = [n + min(0, before) + min(0, after) for n, (before, after) in zip(shape(x), pairs, strict=True)]
    kept = b.slice(x, start, size)
    return b.pad(kept, [(max(0, before), max(0, after)) for before, after in pairs], number)


@lowers(aten.pad.default, quantized=Shared())
def pad(b: Builder, node: Node, x: ir.Value, sides: Sequence[int], mode: str, number: float | None) -> ir.Value:
    if mode == "constant":
        return constant_pad(b, node, x, sides, number or 0.0)
    for index in range(0, len(sides), 2):
        x = _extended(b, x, len(shape(x)) - 1 - index // 2, sides[index], sides[index + 1], mode)
    return x


def _extended(b: Builder, x: ir.Value, axis: int, before: int, after: int, mode: str) -> ir.Value:
    """Rows of `x` itself in front of it and behind it; less than none are cut off, where rows are replicated behind
    that."""
    first, last = max(0, -before), max(0, -after)
    if first + last and mode == "replicate":
        x = _extended(b, x, axis, max(0, before), max(0, after), mode)
        return b.narrow(x, axis, first, shape(x)[axis] - first - last)
    if first + last:
        x = b.narrow(x, axis, first, shape(x)[axis] - first - last)
        before, after = max(0, before), max(0, after)
    size = shape(x)[axis]

    def edge(start: int, count: int) -> ir.Value:
        if mode == "replicate":
            return b.tile(b.narrow(x, axis, start, 1), [count if i == axis else 1 for i in range(len(shape(x)))])
        rows = b.narrow(x, axis, start, count)
        return b.reverse(rows, axis) if mode == "reflect" else rows

    first, last = {
        "reflect": (1, size - 1 - after),
        "replicate": (0, size - 1),
        "circular": (size - before, 0),
    }[mode]
    front = [edge(first, before)] if before else []
    back = [edge(last, after)] if after else []
    return b.concat([*front, x, *back], axis)


@lowers(aten.upsample_nearest2d.vec, quantized=Shared())
def upsample_nearest(b: Builder, node: Node, x: ir.Value, _size: object, factors: Sequence[float] | None) -> ir.Value:
    return _resize(b, node, x, "NEAREST_NEIGHBOR", False, factors)


@lowers(aten.upsample_nearest2d.default, quantized=Shared())
def upsample_nearest_to(
    b: Builder, node: Node, x: ir.Value, size: object, y_factor: float | None, x_factor: float | None
) -> ir.Value:
    return upsample_nearest(b, node, x, size, _both(y_factor, x_factor))


@lowers(aten.upsample_bilinear2d.vec, quantized=Shared())
def upsample_bilinear(
    b: Builder, node: Node, x: ir.Value, _size: object, align_corners: bool, factors: Sequence[float] | None
) -> ir.Value:
    return _resize(b, node, x, "BILINEAR", align_corners, factors)


@lowers(aten.upsample_bilinear2d.default, quantized=Shared())
def upsample_bilinear_to(
    b: Builder,
    node: Node,
    x: ir.Value,
    size: object,
    align_corners: bool,
    y_factor: float | None,
    x_factor: float | None,
) -> ir.Value:
    return upsample_bilinear(b, node, x, size, align_corners, _both(y_factor, x_factor))


def _both(y_factor: float | None, x_factor: float | None) -> list[float] | None:
    return None if y_factor is None or x_factor is None else [y_factor, x_factor]


def _resize(b: Builder, node: Node, x: ir.Value, mode: str, aligned: bool, factors: Sequence[float] | None) -> ir.Value:
    """TOSA 1.0 RESIZE reads the input at (o * scale_d + offset) / scale_n. Where an axis has one element, all are it.

    Args:
        factors: what PyTorch scales by, where that is not the ratio of the sizes.
    """
    image = b.transpose(x, NHWC)
    n, *given, c = shape(image)
    wanted = list(node.meta["val"].shape[-2:])
    image = b.tile(image, [1, *(want if have == 1 else 1 for have, want in zip(given, wanted, strict=True)), 1])
    if given == [1, 1]:
        return b.transpose(image, NCHW)
    scale, offset, border = [], [], []
    for have, want, factor in zip(given, wanted, factors or (None, None), strict=True):
        if have == 1:
            have, factor = want, None
        numerator, denominator, start = _sampling(have, want, mode, aligned, factor)
        scale += [numerator, denominator]
        offset.append(start)
        border.append((want - 1) * denominator - (have - 1) * numerator + start)
    shapes = [mlir.constant_shape(values) for values in (scale, offset, border)]
    attribute = ir.Attribute.parse(f"#tosa.resize_mode<{mode}>")
    return b.transpose(b.op("resize", [image, *shapes], [n, *wanted, c], mode=attribute), NCHW)


def _sampling(have: int, want: int, mode: str, aligned: bool, factor: float | None) -> tuple[int, int, int]:
    """(scale_n, scale_d, offset) for one axis.

    Raises:
        ModelError: the factor is no ratio that RESIZE takes.
    """
    if aligned and want > 1:
        common = math.gcd(want - 1, have - 1) or 1
        return (want - 1) // common, max(1, (have - 1) // common), 0
    ratio = Fraction(want, have)
    if factor is not None and factor * have != want:
        ratio = Fraction(factor).limit_denominator(_MOST_SCALE // 2)
        if abs(ratio - Fraction(factor)) * want > ratio * _SLACK:
            raise ModelError(
                f"an image cannot be resized by {factor:g}",
                why=f"it is no ratio of numbers up to {_MOST_SCALE // 2}",
                hint="give the size, or recompute_scale_factor=True",
            )
    numerator, denominator = ratio.numerator, ratio.denominator
    if max(numerator, denominator) > _MOST_SCALE // 2:
        raise ModelError(f"an image cannot be resized by {ratio}", why=f"RESIZE takes numbers up to {_MOST_SCALE // 2}")
    if mode == "BILINEAR":
        # Half-pixel centers: (o + 1/2) have/want - 1/2, doubled to stay whole.
        return 2 * numerator, 2 * denominator, denominator - numerator
    # TOSA rounds to nearest where PyTorch floors: shift by just under half a pixel.
    return 2 * numerator, 2 * denominator, 1 - numerator
