"""What Arm's converter makes of a `.tflite`, with the roundings asked for and the saturation that LiteRT has."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tosaic.support.attributes import enum_of
from tosaic.support.errors import Advice
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of, walk
from tosaic.support.tosa_builder import emit, mul, rebuild, rescale, reshape, tensor
from tosaic.support.values import producer, users

Rounding = Literal["single", "tflite"]

_ONE_ROUNDING = 31  # up to this shift, DOUBLE_ROUND rounds once (TOSA 1.0, apply_scale_32)


def mend_converted(main: ir.Operation, rounding: Rounding) -> list[Advice]:
    """Let `main` compute what LiteRT's reference kernels do, up to the roundings of rescales.

    Args:
        rounding: `single` where each is to round once.

    Returns:
        How many now differ.
    """
    _saturate_indices(main)
    _interpolate_in_32_bits(main)
    _rescale_before_reshape(main)
    _cubes_as_products(main)
    _indices_in_32_bits(main)
    return _with_single_rounding(main) if rounding == "single" else _with_rounding_of_tflite(main)


def _saturate_indices(main: ir.Operation) -> None:
    """A cast that makes the index of a TABLE of int16, in SOFTMAX, wraps where LiteRT's kernel saturates."""
    for op in walk(main):
        if op.name == "tosa.cast" and any(user.name == "tosa.table" for user in users(op.results[0])):
            source, result = op.operands[0], op.results[0]
            if (str(element_type(source)), str(element_type(result))) == ("i32", "i16"):
                with ir.InsertionPoint(op), op.location:
                    result.replace_all_uses_with(rescale(source, "i16", [1 << 30], [30]))
                op.erase()


def _interpolate_in_32_bits(main: ir.Operation) -> None:
    """A TABLE of int16 gives its interpolated values in 7 more bits (TOSA 1.0, TABLE); the converter takes them for
    int16."""
    for op in walk(main):
        result = op.results[0] if op.name == "tosa.table" else None
        if result is not None and str(element_type(result)) == "i16":
            with ir.InsertionPoint(op), op.location:
                wide = emit("table", list(op.operands), shape_of(result), "i32")
                result.replace_all_uses_with(rescale(wide, "i16", [1 << 30], [37]))
            op.erase()


def _rescale_before_reshape(main: ir.Operation) -> None:
    """No reshape takes the i48 sums of a product; their RESCALE, the same for all channels, comes before it."""
    for op in walk(main):
        moved = producer(op.operands[0], "tosa.reshape") if op.name == "tosa.rescale" else None
        if moved is not None and str(element_type(moved.results[0])) == "i48":
            with ir.InsertionPoint(op), op.location:
                sums = moved.operands[0]
                kind = tensor(shape_of(sums), element_type(op.results[0]))
                stored = rebuild(op, [sums, *list(op.operands)[1:]], kind)
                op.results[0].replace_all_uses_with(reshape(stored, shape_of(op.results[0])))
            op.erase()
            if not users(moved.results[0]):
                moved.erase()


def _cubes_as_products(main: ir.Operation) -> None:
    """POW by 3, in GELU, which has no result for what is below 0 (TOSA 1.0, POW)."""
    for op in walk(main):
        exponent = constant_value(op.operands[1]) if op.name == "tosa.pow" else None
        if exponent is not None and (exponent == 3).all():
            (x, _), kind = op.operands, element_type(op.results[0])
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(mul(mul(x, x, kind), x, kind))
            op.erase()


def _indices_in_32_bits(main: ir.Operation) -> None:
    """What ARGMAX gives, which LiteRT may hold in 64 bits, and what is computed from it."""
    for op in walk(main):
        for result in op.results:
            if not isinstance(result.type, ir.RankedTensorType) or str(element_type(result)) != "i64":
                continue
            array = constant_value(result)
            if array is None:
                result.set_type(tensor(shape_of(result), "i32"))
            elif array.size and np.abs(array).max() < 2**31:
                with ir.InsertionPoint(op), op.location:
                    result.replace_all_uses_with(constant(array.astype(np.int32)))


def _with_single_rounding(main: ir.Operation) -> list[Advice]:
    """RESCALE with one rounding, which is another result where two round by a shift above 31."""
    changed = 0
    for op in _rounding_twice(main):
        _round_once(op)
        shifts = constant_value(op.operands[2])
        changed += shifts is None or bool((shifts > _ONE_ROUNDING).any())
    if not changed:
        return []
    what = f"{changed} rescales round once, where TensorFlow Lite rounds twice"
    return [Advice(what, "", "--rounding tflite for its results to the bit; each of them is a step apart at most")]


def _with_rounding_of_tflite(main: ir.Operation) -> list[Advice]:
    """FULLY_CONNECTED with one rounding, as LiteRT's kernel has it: a convolution whose weights have two dimensions;
    so is what is shifted too little for a second one."""
    for op in _rounding_twice(main):
        sums, shifts = producer(op.operands[0], "tosa.conv2d"), constant_value(op.operands[2])
        weights = sums and producer(sums.operands[1], "tosa.reshape")
        is_dense = weights is not None and len(shape_of(weights.operands[0])) == 2
        if is_dense or (shifts is not None and (shifts <= _ONE_ROUNDING).all()):
            _round_once(op)
    return []


def _rounding_twice(main: ir.Operation) -> list[ir.Operation]:
    return [op for op in walk(main) if op.name == "tosa.rescale" and enum_of(op, "rounding_mode") == "DOUBLE_ROUND"]


def _round_once(op: ir.Operation) -> None:
    op.attributes["rounding_mode"] = ir.Attribute.parse("#tosa.rounding_mode<SINGLE_ROUND>")
