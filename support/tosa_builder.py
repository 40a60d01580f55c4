"""Building TOSA ops at the current insertion point and location."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.support.mlir import constant, constant_shape, element_type, ir, numpy_dtype, shape_of

_ENUMS = {"rounding_mode": "rounding_mode", "mode": "resize_mode"}
_I32_ARRAYS = {"perms"}


def element(kind: ir.Type | str) -> ir.Type:
    """An element type, given as it is or by its MLIR name, e.g. `i48`."""
    return ir.Type.parse(kind) if isinstance(kind, str) else kind


def tensor(shape: Sequence[int], kind: ir.Type | str) -> ir.RankedTensorType:
    """A tensor type of element type `kind`."""
    return ir.RankedTensorType.get(list(shape), element(kind))


def emit(
    name: str, operands: Sequence[ir.Value], shape: Sequence[int], kind: ir.Type | str, **attributes: object
) -> ir.Value:
    """A TOSA op with one result, e.g. `emit("reverse", [x], shape, "i8", axis=1)`.

    Attributes may be MLIR attributes or types, bools, ints (i32), sequences of ints, or the word of an enum
    (`rounding_mode`, `mode`).
    """
    made = {key: _attribute(key, value) for key, value in attributes.items()}
    return ir.Operation.create(
        f"tosa.{name}", results=[tensor(shape, kind)], operands=list(operands), attributes=made
    ).result


def zero_point(value: int, kind: ir.Type | str) -> ir.Value:
    """A zero point operand of element type `kind`."""
    return constant(np.array([value]).astype(numpy_dtype(element(kind))), element(kind))


def rescale(
    x: ir.Value,
    kind: ir.Type | str,
    multiplier: Sequence[int],
    shift: Sequence[int],
    input_zp: int = 0,
    output_zp: int = 0,
    input_unsigned: bool = False,
    rounding: str = "SINGLE_ROUND",
) -> ir.Value:
    """`tosa.rescale` to element type `kind`; per channel when there is more than one multiplier.

    An i48 input takes 16-bit multipliers, every other 32-bit ones (TOSA 1.0, 2.14 RESCALE).
    """
    wide = str(element_type(x)) != "i48"
    return emit(
        "rescale",
        [
            x,
            constant(np.array(multiplier, np.int32 if wide else np.int16)),
            constant(np.array(shift, np.int8)),
            zero_point(input_zp, element_type(x)),
            zero_point(output_zp, kind),
        ],
        shape_of(x),
        kind,
        scale32=wide,
        rounding_mode=rounding,
        per_channel=len(multiplier) > 1,
        input_unsigned=input_unsigned,
        output_unsigned=False,
    )


def reshape(x: ir.Value, shape: Sequence[int], **attributes: object) -> ir.Value:
    """`tosa.reshape`; `x` itself where the shape is the same."""
    if tuple(shape) == shape_of(x):
        return x
    return emit("reshape", [x, constant_shape(shape)], shape, element_type(x), **attributes)


def transpose(x: ir.Value, perms: Sequence[int], **attributes: object) -> ir.Value:
    """`tosa.transpose`: result dimension i is dimension `perms[i]` of `x`; `x` itself where all stay."""
    if list(perms) == sorted(perms):
        return x
    shape = shape_of(x)
    return emit("transpose", [x], [shape[p] for p in perms], element_type(x), perms=perms, **attributes)


def sliced(x: ir.Value, start: Sequence[int], size: Sequence[int]) -> ir.Value:
    """`tosa.slice`: `size` elements of each dimension of `x` from `start` on."""
    return emit("slice", [x, constant_shape(start), constant_shape(size)], size, element_type(x))


def mul(a: ir.Value, b: ir.Value, kind: ir.Type | str) -> ir.Value:
    """`tosa.mul` without a result shift."""
    shape = np.broadcast_shapes(shape_of(a), shape_of(b))
    return emit("mul", [a, b, constant(np.array([0], np.int8))], shape, kind)


def clamp(x: ir.Value, low: float, high: float, **attributes: object) -> ir.Value:
    """`tosa.clamp` to [low, high], whole numbers for an integer tensor."""
    kind = element_type(x)
    number = ir.IntegerAttr.get if isinstance(kind, ir.IntegerType) else ir.FloatAttr.get
    return emit("clamp", [x], shape_of(x), kind, min_val=number(kind, low), max_val=number(kind, high), **attributes)


def rebuild(op: ir.Operation, operands: Sequence[ir.Value], result: ir.Type, **changed: object) -> ir.Value:
    """`op` again with other operands and result type; `changed` attributes replace its own."""
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes.update({key: _attribute(key, value) for key, value in changed.items()})
    return ir.Operation.create(op.name, results=[result], operands=list(operands), attributes=attributes).result


def _attribute(key: str, value: object) -> ir.Attribute:
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, ir.Type):
        return ir.TypeAttr.get(value)
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int | np.integer):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), int(value))
    if isinstance(value, str):
        return ir.Attribute.parse(f"#tosa.{_ENUMS[key]}<{value}>")
    numbers = [int(v) for v in value]  # type: ignore[attr-defined]
    return ir.DenseI32ArrayAttr.get(numbers) if key in _I32_ARRAYS else ir.DenseI64ArrayAttr.get(numbers)
