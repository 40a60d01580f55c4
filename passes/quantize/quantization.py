"""What a quantized type says, and views of the casts around a value."""

from __future__ import annotations

import math

import numpy as np

from tosaic.support.errors import PassError
from tosaic.support.locations import describe
from tosaic.support.mlir import constant, constant_value, dialect, element_type, ir, numpy_dtype, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import tensor
from tosaic.support.values import producer

_quant = dialect("quant")


def quantization_of(value: ir.Value) -> Quantization:
    """What the quantized element type of `value` says.

    Raises:
        PassError: the type is unsigned, a scale is not a positive finite number, or a 16-bit zero point is not 0.
    """
    kind = element_type(value)
    maker = producer(value)
    where = "" if maker is None else describe(maker.location)
    base = _quant.QuantizedType(kind)
    if not base.is_signed:
        raise PassError(f"unsigned quantization `{kind}` is not supported", where=where, hint="quantize to int8")
    axis: int | None = None
    try:
        one = _quant.UniformQuantizedType(kind)
        scales, zero_points = (one.scale,), (one.zero_point,)
    except ValueError:
        many = _quant.UniformQuantizedPerAxisType(kind)
        scales, zero_points, axis = tuple(many.scales), tuple(many.zero_points), many.quantized_dimension
    for scale in scales:
        if not (math.isfinite(scale) and scale > 0):
            raise PassError(f"a quantization scale is {scale}", where=where, why="scales are positive finite numbers",
                            hint="check the calibration data for NaN, infinity, and constant tensors")  # fmt: skip
    storage = str(base.storage_type)
    if storage in ("i16", "i32") and any(zero_points):
        raise PassError(f"a zero point of `{storage}` is not 0", where=where, why="TOSA allows none on this type")
    return Quantization(storage, scales, zero_points, axis, base.storage_type_min, base.storage_type_max)


def stays_float(op: ir.Operation) -> bool:
    """Whether `op` is kept in f32: by the user, or because no TABLE follows it."""
    return "tosaic.float" in op.attributes


def is_kept_float(op: ir.Operation) -> bool:
    """Whether the user keeps `op` in f32."""
    return stays_float(op) and isinstance(op.attributes["tosaic.float"], ir.UnitAttr)


def quantized_view(value: ir.Value) -> tuple[ir.Value, Quantization] | None:
    """The stored integers behind an f32 `value` that a per-tensor `quant.dcast` makes, else None."""
    made = dequantized_view(value)
    return made if made is not None and made[1].axis is None else None


def dequantized_view(value: ir.Value) -> tuple[ir.Value, Quantization] | None:
    """The stored integers behind an f32 `value` that any `quant.dcast` makes, else None."""
    cast = producer(value, "quant.dcast")
    if cast is None:
        return None
    quantization = quantization_of(cast.operands[0])
    return storage(cast.operands[0], quantization), quantization


def storage(value: ir.Value, quantization: Quantization) -> ir.Value:
    """The stored integers of a value of quantized type."""
    cast = producer(value, "quant.scast")
    if cast is not None:
        return cast.operands[0]
    result = tensor(shape_of(value), quantization.storage)
    return ir.Operation.create("quant.scast", results=[result], operands=[value]).result


def as_quantized(stored: ir.Value, quantization: Quantization) -> ir.Value:
    """The value of quantized type whose stored integers are `stored`."""
    result = tensor(shape_of(stored), quantization.type())
    return ir.Operation.create("quant.scast", results=[result], operands=[stored]).result


def quantize(value: ir.Value, quantization: Quantization) -> ir.Value:
    """The stored integers of an f32 `value`: a cast, folded where the value is constant."""
    constant_ = float_constant(value)
    if constant_ is not None:
        kind = ir.Type.parse(quantization.storage)
        return constant(quantization.quantize(constant_).astype(numpy_dtype(kind)), kind)
    result = tensor(shape_of(value), quantization.type())
    cast = ir.Operation.create("quant.qcast", results=[result], operands=[value]).result
    return storage(cast, quantization)


def dequantize(stored: ir.Value, quantization: Quantization) -> ir.Value:
    """The f32 value of stored integers: a cast."""
    result = tensor(shape_of(stored), "f32")
    source = as_quantized(stored, quantization)
    return ir.Operation.create("quant.dcast", results=[result], operands=[source]).result


def float_constant(value: ir.Value) -> np.ndarray | None:
    """The float64 values of a constant, plain f32 or dequantized, reshaped or not; None where it is computed."""
    if (reshape := producer(value, "tosa.reshape")) is not None:
        values = float_constant(reshape.operands[0])
        return None if values is None else values.reshape(shape_of(value))
    if str(element_type(value)) == "f32":
        plain = constant_value(value)
        if plain is not None:
            return plain.astype(np.float64)
    view = dequantized_view(value)
    if view is None:
        return None
    stored = constant_value(view[0])
    return None if stored is None else view[1].dequantize(stored)
