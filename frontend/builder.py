"""Emits TOSA for the lowerings: types are inferred, constants made, ranks equalized."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.fx import Node

from tosaic.frontend.constant import Constant
from tosaic.support import mlir, tosa_builder
from tosaic.support.errors import ModelError
from tosaic.support.functions import retype
from tosaic.support.mlir import ir
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_ops import MOST_JOINED

quant = mlir.dialect("quant")

NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_INT32 = np.iinfo(np.int32)
_TORCH_TO_NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float32,
    torch.int64: np.int32,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.bool: np.bool_,
}

Operand: TypeAlias = ir.Value | Constant


def compiled_dtype(dtype: torch.dtype) -> np.dtype:
    """The dtype a torch dtype is compiled to: int64 becomes int32, float64 float32.

    Raises:
        ModelError: the dtype has no form in TOSA.
    """
    if dtype not in _TORCH_TO_NUMPY:
        raise ModelError(f"tensors of {dtype} cannot be compiled", hint="cast them to float32, int32 or bool")
    return np.dtype(_TORCH_TO_NUMPY[dtype])


def narrowed(array: np.ndarray) -> np.ndarray:
    """A constant in the dtype it is compiled to.

    Raises:
        ModelError: an int64 does not fit int32, or TOSA has no such type.
    """
    if array.dtype == np.uint8:
        compiled_dtype(torch.uint8)
    if array.dtype == np.int64:
        if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
            raise ModelError("an int64 constant does not fit int32", why=f"it reaches {np.abs(array).max()}")
        return array.astype(np.int32)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def shape(value: Operand) -> tuple[int, ...]:
    """The shape of a value or constant."""
    return value.shape if isinstance(value, Constant) else mlir.shape_of(value)


class Builder:
    """Emits ops at the current insertion point and location.

    `attention` to TOSA's rule that operands have equal rank is paid in `pointwise`; every other method takes operands
    as its op does. While `stays_float` is set, ops and calls of composites get the attribute `tosaic.float`.
    """

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.stays_float = False
        self.f32 = ir.F32Type.get()
        self.i32 = ir.IntegerType.get_signless(32)
        self.bool = ir.IntegerType.get_signless(1)
        self._composites: dict[tuple, ir.Operation] = {}

    def op(
        self,
        name: str,
        operands: Sequence[Operand],
        result: Sequence[int],
        element: ir.Type | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """One `tosa` op; its element type is the first operand's unless given, its attributes as `emit` takes them."""
        values = [self.value(operand) for operand in operands]
        element = element or mlir.element_type(values[0])
        return tosa_builder.emit(name, values, result, element, **attributes, **self._mark())

    def _mark(self) -> dict[str, ir.Attribute]:
        return {"tosaic.float": ir.UnitAttr.get()} if self.stays_float else {}

    def value(self, operand: Operand) -> ir.Value:
        """The operand as a value; a quantized constant becomes `tosa.const` -> `quant.scast` -> `quant.dcast`."""
        if isinstance(operand, ir.Value):
            return operand
        stored = mlir.constant(narrowed(operand.array))
        if operand.quantization is None:
            return stored
        kind = ir.RankedTensorType.get(operand.shape, operand.quantization.type())
        cast = ir.Operation.create("quant.scast", operands=[stored], results=[kind]).result
        return self.dequantize(cast)

    def quantize(self, value: ir.Value, quantization: Quantization) -> ir.Value:
        """`quant.qcast` of a real tensor."""
        kind = ir.RankedTensorType.get(mlir.shape_of(value), quantization.type())
        return ir.Operation.create("quant.qcast", operands=[value], results=[kind]).result

    def dequantize(self, value: ir.Value) -> ir.Value:
        """`quant.dcast` of a quantized tensor."""
        kind = ir.RankedTensorType.get(mlir.shape_of(value), self.f32)
        return ir.Operation.create("quant.dcast", operands=[value], results=[kind]).result

    def as_quantized(self, value: ir.Value, quantization: Quantization) -> ir.Value:
        """`quant.scast` of plain integers to what they stand for, none where the type says so already."""
        if isinstance(mlir.element_type(value), ir.IntegerType):
            kind = ir.RankedTensorType.get(mlir.shape_of(value), quantization.type())
            return ir.Operation.create("quant.scast", operands=[value], results=[kind]).result
        return value

    def stored(self, value: ir.Value) -> ir.Value:
        """`quant.scast` of a quantized tensor to its integers; any other value as it is."""
        element = mlir.element_type(value)
        if not isinstance(element, quant.QuantizedType):
            return value
        kind = ir.RankedTensorType.get(mlir.shape_of(value), element.storage_type)
        return ir.Operation.create("quant.scast", operands=[value], results=[kind]).result

    def element(self, node: Node) -> ir.Type:
        """The element type that a node's result is compiled to."""
        return mlir.mlir_type(compiled_dtype(node.meta["val"].dtype))

    def zeros(self, *dims: int) -> ir.Value:
        """A float constant of zeros."""
        return mlir.constant(np.zeros(dims, np.float32))

    def zero_point(self, like: Operand) -> ir.Value:
        """The zero-point operand of an op on unquantized data."""
        return tosa_builder.zero_point(0, mlir.element_type(self.value(like)))

    def scalar(self, number: float, rank: int, element: ir.Type) -> ir.Value:
        """A constant of one element."""
        return mlir.constant(narrowed(np.full((1,) * rank, number, mlir.numpy_dtype(element))))

    def reshape(self, value: Operand, dims: Sequence[int]) -> ir.Value:
        """`tosa.reshape`, none where the shape is already right."""
        return tosa_builder.reshape(self.value(value), dims, **self._mark())

    def ranked(self, operand: Operand, rank: int) -> Operand:
        """The operand with leading axes of size 1 up to `rank`; a constant is reshaped here and now."""
        missing = rank - len(shape(operand))
        dims = (1,) * missing + shape(operand)
        if isinstance(operand, ir.Value):
            return self.reshape(operand, dims)
        axis = operand.quantization.axis if operand.quantization else None
        return operand.reshape(dims, axis=None if axis is None else axis + missing)

    def transpose(self, value: Operand, axes: Sequence[int]) -> ir.Value:
        """`tosa.transpose`, none where all axes stay: axis i of the result is axis `axes[i]` of the operand."""
        return tosa_builder.transpose(self.value(value), axes, **self._mark())

    def slice(self, value: Operand, start: Sequence[int], size: Sequence[int]) -> ir.Value:
        """`tosa.slice`, none where all is kept."""
        value = self.value(value)
        if tuple(size) == shape(value):
            return value
        return self.op("slice", [value, mlir.constant_shape(start), mlir.constant_shape(size)], size)

    def narrow(self, value: Operand, axis: int, start: int, size: int) -> ir.Value:
        """`size` indices of `axis` from `start` on."""
        dims = list(shape(value))
        dims[axis] = size
        return self.slice(value, [start if i == axis else 0 for i in range(len(dims))], dims)

    def concat(self, values: Sequence[Operand], axis: int) -> ir.Value:
        """`tosa.concat`, none of one operand; more than TOSA joins at once are joined in parts."""
        operands = [self.value(value) for value in values]
        if len(operands) == 1:
            return operands[0]
        if len(operands) > MOST_JOINED:
            parts = [operands[i : i + MOST_JOINED] for i in range(0, len(operands), MOST_JOINED)]
            return self.concat([self.concat(part, axis) for part in parts], axis)
        dims = list(shape(operands[0]))
        dims[axis] = sum(shape(operand)[axis] for operand in operands)
        return self.op("concat", operands, dims, axis=axis)

    def reverse(self, value: Operand, axis: int) -> ir.Value:
        """`tosa.reverse`, none of a single index."""
        value = self.value(value)
        if shape(value)[axis] == 1:
            return value
        return self.op("reverse", [value], shape(value), axis=axis)

    def tile(self, value: Operand, multiples: Sequence[int]) -> ir.Value:
        """`tosa.tile`, none where every multiple is 1."""
        value = self.value(value)
        if all(multiple == 1 for multiple in multiples):
            return value
        dims = [size * multiple for size, multiple in zip(shape(value), multiples, strict=True)]
        return self.op("tile", [value, mlir.constant_shape(multiples)], dims)

    def pad(self, value: Operand, padding: Sequence[tuple[int, int]], number: float = 0.0) -> ir.Value:
        """`tosa.pad` by `number`, (before, after) for each axis; none where nothing is padded."""
        value = self.value(value)
        if not any(before or after for before, after in padding):
            return value
        dims = [size + before + after for size, (before, after) in zip(shape(value), padding, strict=True)]
        fill = mlir.constant(np.full(1, number, mlir.numpy_dtype(mlir.element_type(value))))
        return self.op("pad", [value, mlir.constant_shape([n for pair in padding for n in pair]), fill], dims)

    def gather(self, values: Operand, indices: Operand) -> ir.Value:
        """`tosa.gather`: [N, K, C] values at [N, W] int32 indices give [N, W, C]."""
        (n, _, c), (_, w) = shape(values), shape(indices)
        return self.op("gather", [values, indices], [n, w, c])

    def cast(self, value: Operand, element: ir.Type) -> ir.Value:
        """`tosa.cast`, none where the type is already right."""
        value = self.value(value)
        if mlir.element_type(value) == element:
            return value
        return self.op("cast", [value], shape(value), element)

    def reduce(self, name: str, value: Operand, axis: int) -> ir.Value:
        """`tosa.reduce_<name>` over one axis, which stays with size 1."""
        dims = list(shape(value))
        dims[axis] = 1
        return self.op(f"reduce_{name}", [value], dims, axis=axis)

    def pointwise(self, name: str, *operands: Operand | float, element: ir.Type | None = None) -> ir.Value:
        """A broadcasting op; numbers become constants, and leading axes of size 1 equalize the ranks.

        The constants have the element type of the first tensor; those of a select have that of its result,
        `element`, or of the last tensor.
        """
        tensors = [x for x in operands if not isinstance(x, int | float)]
        rank = max(len(shape(tensor)) for tensor in tensors)
        ranked = [self.value(self.ranked(tensor, rank)) for tensor in tensors]
        queue = iter(ranked)
        kind = mlir.element_type(ranked[0])
        if name == "select":
            kind = element = element or mlir.element_type(ranked[-1])
        values = [self.scalar(x, rank, kind) if isinstance(x, int | float) else next(queue) for x in operands]
        result = np.broadcast_shapes(*(shape(value) for value in values))
        if name == "mul":
            values.append(mlir.constant(np.zeros(1, np.int8)))
        if name == "negate":
            values += [self.zero_point(values[0]), self.zero_point(values[0])]
        return self.op(name, values, result, element)

    def clamp(self, value: Operand, low: float | None, high: float | None) -> ir.Value:
        """`tosa.clamp`; None leaves a side open. TOSA clamps no int32: those are compared with the limits."""
        value = self.value(value)
        element = mlir.element_type(value)
        if element == self.i32:
            value = value if low is None else self.pointwise("maximum", value, math.ceil(low))
            return value if high is None else self.pointwise("minimum", value, math.floor(high))
        if element == self.f32:
            limits = np.finfo(np.float32)
            low = float(limits.min) if low is None else max(float(low), float(limits.min))
            high = float(limits.max) if high is None else min(float(high), float(limits.max))
        else:
            integers = np.iinfo(mlir.numpy_dtype(element))
            low = int(integers.min if low is None else max(low, integers.min))
            high = int(integers.max if high is None else min(high, integers.max))
        return tosa_builder.clamp(value, low, high, **self._mark())

    def composite(
        self,
        kind: str,
        operands: Sequence[Operand],
        body: Callable[..., Sequence[ir.Value]],
        **attributes: ir.Attribute,
    ) -> list[ir.Value]:
        """Call a private function that is quantized as one unit; equal ones are shared.

        Args:
            kind: the string of `tosaic.composite`.
            operands: the arguments.
            body: emits the float definition from the function's arguments.
            attributes: further `tosaic.*` attributes.
        """
        values = [self.value(operand) for operand in operands]
        types = [value.type for value in values]
        key = (kind, *map(str, types), *map(str, attributes.values()))
        if key not in self._composites:
            self._composites[key] = self._define(kind, types, body, attributes)
        function = self._composites[key]
        callee = ir.FlatSymbolRefAttr.get(ir.StringAttr(function.attributes["sym_name"]).value)
        results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
        call = ir.Operation.create(
            "func.call", operands=values, results=results, attributes={"callee": callee} | self._mark()
        )
        return list(call.results)

    def _define(self, kind: str, types: list[ir.Type], body: Callable, attributes: dict) -> ir.Operation:
        func = mlir.dialect("func")
        with ir.InsertionPoint(self.module.body):
            function = func.FuncOp(f"{kind}_{len(self._composites)}", (types, []), visibility="private")
        function.operation.attributes["tosaic.composite"] = ir.StringAttr.get(kind)
        for name, attribute in attributes.items():
            function.operation.attributes[f"tosaic.{name}"] = attribute
        block = function.operation.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
        with ir.InsertionPoint(block):
            func.ReturnOp(body(*block.arguments))
        retype(function.operation)
        return function.operation
