"""Ops that move or select values commute with quantization: `qcast(move(x))` -> `move(qcast(x))`, exactly.

Rounding and saturation are monotone, so maxima, minima and clamps commute too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tosaic.passes.permutation import permutation_of
from tosaic.passes.quantize.lowering import lowers
from tosaic.passes.quantize.multipliers import scale_by, widen
from tosaic.passes.quantize.quantization import dequantize, dequantized_view, float_constant, quantize, quantized_view
from tosaic.passes.rewrite import Replacement, pattern
from tosaic.support.attributes import enum_of, float_of
from tosaic.support.mlir import constant, constant_value, ir, numpy_dtype, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import clamp, rebuild, tensor
from tosaic.support.values import producer

_FIRST_OPERAND = ("tosa.reshape", "tosa.transpose", "tosa.slice", "tosa.tile", "tosa.reverse", "tosa.gather",
                  "tosa.max_pool2d", "tosa.reduce_max", "tosa.reduce_min", "tosa.identity")  # fmt: skip


@lowers(*_FIRST_OPERAND)
def hoist_unary(op: ir.Operation, out: Quantization) -> ir.Value:
    operands = list(op.operands)
    return _moved(op, [quantize(operands[0], out), *operands[1:]], out)


@lowers("tosa.concat")
def hoist_concat(op: ir.Operation, out: Quantization) -> ir.Value:
    return _moved(op, [quantize(operand, out) for operand in op.operands], out)


@lowers("tosa.maximum", "tosa.minimum")
def hoist_extremum(op: ir.Operation, out: Quantization) -> ir.Value:
    """TOSA has these on i32 only: widened and narrowed without change."""
    wide = [widen(quantize(operand, out), 0) for operand in op.operands]
    found = rebuild(op, wide, tensor(shape_of(op.results[0]), "i32"))
    return scale_by(found, out.storage, [1.0])


@lowers("tosa.scatter")
def hoist_scatter(op: ir.Operation, out: Quantization) -> ir.Value:
    values, indices, rows = op.operands
    return _moved(op, [quantize(values, out), indices, quantize(rows, out)], out)


@lowers("tosa.select")
def hoist_select(op: ir.Operation, out: Quantization) -> ir.Value:
    condition, a, b = op.operands
    return _moved(op, [condition, quantize(a, out), quantize(b, out)], out)


@lowers("tosa.pad")
def hoist_pad(op: ir.Operation, out: Quantization) -> ir.Value:
    x, padding, value = op.operands
    return _moved(op, [quantize(x, out), padding, quantize(value, out)], out)


@lowers("tosa.resize")
def hoist_resize(op: ir.Operation, out: Quantization) -> ir.Value | None:
    if enum_of(op, "mode") != "NEAREST_NEIGHBOR":
        return None
    x, *rest = op.operands
    return _moved(op, [quantize(x, out), *rest], out)


@lowers("tosa.clamp")
def hoist_clamp(op: ir.Operation, out: Quantization) -> ir.Value:
    low, high = (float_of(op, name) for name in ("min_val", "max_val"))
    lowest, highest = (int(v) for v in out.quantize(np.clip([low, high], -3.4e38, 3.4e38)))
    stored = quantize(op.operands[0], out)
    return stored if (lowest, highest) == (out.low, out.high) else clamp(stored, lowest, highest)


@pattern(*_FIRST_OPERAND, "tosa.resize")
def sink_dequantize(op: ir.Operation) -> Replacement:
    """`move(dcast(x))` -> `dcast(move(x))`."""
    if op.name == "tosa.resize" and enum_of(op, "mode") != "NEAREST_NEIGHBOR":
        return None
    view = quantized_view(op.operands[0])
    if view is None:
        return None
    stored, quantization = view
    return dequantize(_moved(op, [stored, *list(op.operands)[1:]], quantization), quantization)


@pattern("tosa.transpose", "tosa.reshape")
def move_weights(op: ir.Operation) -> Replacement:
    """`move(dcast(const))` -> `dcast(moved const)`, the channels of its scales moved along."""
    view = dequantized_view(op.operands[0])
    stored = None if view is None else constant_value(view[0])
    if view is None or stored is None:
        return None
    shape, axis = shape_of(op.results[0]), view[1].axis
    if op.name == "tosa.transpose":
        perms = permutation_of(op)
        stored, axis = stored.transpose(perms), None if axis is None else perms.index(axis)
    elif axis is not None:
        behind = math.prod(stored.shape[axis:])
        found = [i for i, size in enumerate(shape) if size == stored.shape[axis] and math.prod(shape[i:]) == behind]
        if not found:
            return None
        axis = found[-1]
    moved = constant(np.ascontiguousarray(stored.reshape(shape)), ir.Type.parse(view[1].storage))
    return dequantize(moved, replace(view[1], axis=axis))


@pattern("tosa.concat", "tosa.scatter")
def sink_dequantize_joined(op: ir.Operation) -> Replacement:
    """`concat(dcast(x), dcast(y))` -> `dcast(concat(x, y))` where both have the same quantization; so with SCATTER."""
    operands = list(op.operands)
    data = operands if op.name == "tosa.concat" else operands[::2]
    if any(producer(operand, "quant.dcast") is None for operand in data):
        return None
    views = [quantized_view(operand) for operand in data]
    made = [view for view in views if view is not None]
    if len(made) < len(views) or len({quantization for _, quantization in made}) > 1:
        return None
    quantization = made[0][1]
    stored = dict(zip(data, (stored for stored, _ in made), strict=True))
    return dequantize(_moved(op, [stored.get(operand, operand) for operand in operands], quantization), quantization)


@pattern("tosa.pad")
def sink_dequantize_pad(op: ir.Operation) -> Replacement:
    """`pad(dcast(x), c)` -> `dcast(pad(x, q(c)))` where `c` is representable."""
    view, value = quantized_view(op.operands[0]), float_constant(op.operands[2])
    if view is None or value is None:
        return None
    stored, quantization = view
    integer = _representable(value, quantization)
    if integer is None:
        return None
    return dequantize(_moved(op, [stored, op.operands[1], integer], quantization), quantization)


@pattern("tosa.select")
def sink_dequantize_select(op: ir.Operation) -> Replacement:
    """`select(p, dcast(x), dcast(y))` -> `dcast(select(p, x, y))` where both have the same quantization.

    A constant has that of the other where it is representable.
    """
    views = [quantized_view(operand) for operand in list(op.operands)[1:]]
    made = [view[1] for view in views if view is not None]
    if not made or any(one != made[0] for one in made):
        return None
    stored = [_as_stored(operand, view, made[0]) for operand, view in zip(list(op.operands)[1:], views, strict=True)]
    if stored[0] is None or stored[1] is None:
        return None
    return dequantize(_moved(op, [op.operands[0], stored[0], stored[1]], made[0]), made[0])


def _as_stored(
    value: ir.Value, view: tuple[ir.Value, Quantization] | None, quantization: Quantization
) -> ir.Value | None:
    """The stored integers of an operand; None where it is no constant that `quantization` represents."""
    if view is not None:
        return view[0]
    real = float_constant(value)
    return None if real is None else _representable(real, quantization)


def _representable(real: np.ndarray, quantization: Quantization) -> ir.Value | None:
    """A constant's stored integers, where they stand for it exactly."""
    stored = quantization.quantize(real)
    if (np.float32(quantization.dequantize(stored)) != np.float32(real)).any():
        return None
    kind = ir.Type.parse(quantization.storage)
    return constant(stored.astype(numpy_dtype(kind)), kind)


PATTERNS = [move_weights, sink_dequantize, sink_dequantize_joined, sink_dequantize_pad]
OUTSIDE_TABLES = [sink_dequantize_select]


def _moved(op: ir.Operation, operands: list[ir.Value], quantization: Quantization) -> ir.Value:
    result = tensor(shape_of(op.results[0]), quantization.storage)
    return rebuild(op, operands, result)
