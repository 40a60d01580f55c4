"""Images in another size: TOSA's RESIZE with LiteRT's own fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.frontend.tflite_ops.fixed_point import divided, narrowed
from tosaic.frontend.tflite_ops.registry import Call, tflite_op
from tosaic.support.mlir import constant, constant_shape, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, rescale, reshape, transpose

_UNIT = 1 << 10  # the fraction of a pixel in `ResizeBilinearInteger`


@tflite_op("RESIZE_BILINEAR", when=lambda call: call.kinds() in (("i8", "i8"), ("i16", "i16")))
def bilinear(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """`ResizeBilinearInteger`: fractions of 10 bits; half a step is rounded away from 0.

    Where sums of int16 do not fit 32 bits, half a step below 0 is rounded up.
    """
    sizes = _sizes(call)
    x = _spread(operands[0], sizes)
    kind, (_, height, width, _) = str(element_type(x)), shape_of(x)
    centers = bool(call.options["HalfPixelCenters"])
    places = [_fixed_places(*pair, call, centers) for pair in zip((height, width), sizes, strict=True)]
    shared = [math.gcd(_UNIT, step, offset) for step, offset in places]
    (n_y, d_y, at_y), (n_x, d_x, at_x) = (
        (_UNIT // common, step // common, offset // common)
        for common, (step, offset) in zip(shared, places, strict=True)
    )
    bits = round(math.log2(n_y * n_x))
    if shape_of(x)[1:3] == sizes:
        return [x]
    sums = _resized(x, sizes, (n_y, d_y, n_x, d_x), (at_y, at_x), "BILINEAR", "i32" if kind == "i8" else "i48")
    if kind == "i8":
        return [narrowed(divided(sums, bits), kind)]
    if bits < 15:
        return [narrowed(divided(rescale(sums, "i32", [1 << 14], [14]), bits), kind)]
    return [rescale(sums, kind, [1 << 14], [14 + bits])]


@tflite_op("RESIZE_NEAREST_NEIGHBOR", when=lambda call: call.kinds() in (("i8", "i8"), ("i16", "i16"), ("f32", "f32")))
def nearest(call: Call, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """The pixels that `GetNearestNeighbor` names."""
    (x,) = operands
    for axis, size in zip((1, 2), _sizes(call), strict=True):
        x = _taken(x, axis, _nearest_places(shape_of(x)[axis], size, call))
    return [x]


def _sizes(call: Call) -> tuple[int, int]:
    _, height, width, _ = call.outputs[0].shape
    return height, width


def _spread(x: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """A single row or column, which is all that its image has, as often as wanted."""
    times = [1, *(wanted if size == 1 else 1 for size, wanted in zip(shape_of(x)[1:3], sizes, strict=True)), 1]
    if times == [1] * 4:
        return x
    shape = [size * one for size, one in zip(shape_of(x), times, strict=True)]
    return emit("tile", [x, constant_shape(times)], shape, element_type(x))


def _fixed_places(size: int, wanted: int, call: Call, centers: bool) -> tuple[int, int]:
    """How far apart results lie, and where the first lies, in 2^-10 of a pixel: `ComputeInterpolationValuesInteger`."""
    if size == wanted:
        return _UNIT, 0
    step = (_UNIT * size + wanted // 2) // wanted
    if call.options["AlignCorners"] and wanted > 1:
        step = (_UNIT * (size - 1) + (wanted - 1) // 2) // (wanted - 1)
    return step, step // 2 - _UNIT // 2 if centers else 0


def _nearest_places(size: int, wanted: int, call: Call) -> np.ndarray:
    corners, centers = bool(call.options["AlignCorners"]), bool(call.options["HalfPixelCenters"])
    inner = corners and wanted > 1
    scale = np.float32(size - 1) / np.float32(wanted - 1) if inner else np.float32(size) / np.float32(wanted)
    at = (np.arange(wanted, dtype=np.float32) + np.float32(0.5 if centers else 0)) * scale
    rounded = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    return np.clip(rounded, 0, size - 1).astype(np.int32)


def _taken(x: ir.Value, axis: int, places: np.ndarray) -> ir.Value:
    """Rows or columns of an image."""
    batch, height, width, channels = shape_of(x)
    size, wanted, kind = shape_of(x)[axis], len(places), element_type(x)
    if np.array_equal(places, np.arange(size)):
        return x
    if np.array_equal(places, np.arange(wanted) * size // wanted) and wanted % size == 0:
        return _repeated(x, axis, wanted // size)
    rows = x if axis == 1 else transpose(x, (0, 2, 1, 3))
    others = height * width // size * channels
    taken = constant(np.ascontiguousarray(np.broadcast_to(places, (batch, wanted))))
    rows = emit("gather", [reshape(rows, (batch, size, others)), taken], (batch, wanted, others), kind)
    if axis == 1:
        return reshape(rows, (batch, wanted, width, channels))
    return transpose(reshape(rows, (batch, wanted, height, channels)), (0, 2, 1, 3))


def _repeated(x: ir.Value, axis: int, times: int) -> ir.Value:
    """Each row or column several times: RESIZE to the nearest, whose results lie at the middle of their pixels."""
    sizes = [size * (times if index == axis else 1) for index, size in enumerate(shape_of(x)[1:3], 1)]
    scale = [2 * times, 2] if axis == 1 else [1, 1, 2 * times, 2]
    scale += [1, 1] if axis == 1 else []
    offset = 1 - times
    return _resized(x, sizes, scale, (offset, 0) if axis == 1 else (0, offset), "NEAREST_NEIGHBOR", element_type(x))


def _resized(
    x: ir.Value, sizes: Sequence[int], scale: Sequence[int], offset: Sequence[int], mode: str, kind: ir.Type | str
) -> ir.Value:
    batch, height, width, channels = shape_of(x)
    (n_y, d_y, n_x, d_x), (at_y, at_x) = scale, offset
    border = [
        (wanted - 1) * step - (size - 1) * unit + at
        for wanted, step, size, unit, at in zip(sizes, (d_y, d_x), (height, width), (n_y, n_x), offset, strict=True)
    ]
    operands = [x, *(constant_shape(one) for one in ((n_y, d_y, n_x, d_x), (at_y, at_x), border))]
    return emit("resize", operands, (batch, *sizes, channels), kind, mode=mode)
