"""Build small TOSA modules for tests: values carry shapes and element types, methods append ops and infer shapes.

    graph = Graph()
    x = graph.input((1, 8, 8, 16), "i8")
    y = graph.conv2d(x, weights, bias, pad=(1, 1, 1, 1))
    module = graph.module(graph.requantize(y, "i8", scale=0.01))

Element types are MLIR's names ("i8", "i48", "f32"); constants are numpy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tosaic.support.mlir import constant, constant_shape, context, element_type, ir, numpy_dtype, shape_of


def multiplier_and_shift(scale: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """RESCALE's int32 multiplier in [2**30, 2**31) and int8 shift with `scale` ~ multiplier / 2**shift."""
    mantissa, exponent = np.frexp(np.atleast_1d(np.asarray(scale, np.float64)))
    multiplier = np.round(mantissa * 2**31).astype(np.int64)
    exponent = exponent + (multiplier == 2**31)
    multiplier = np.where(multiplier == 2**31, 2**30, multiplier)
    return multiplier.astype(np.int32), (31 - exponent).astype(np.int8)


def random_input(rng: np.random.Generator, shape: Sequence[int], element: str) -> np.ndarray:
    """An array over the full range of `element`; small floats for f32."""
    if element == "i1":
        return rng.integers(0, 2, shape).astype(bool)
    if element == "f32":
        return rng.normal(size=shape).astype(np.float32)
    info = np.iinfo(element.replace("i", "int"))
    return rng.integers(info.min, info.max + 1, shape, dtype=np.int64).astype(info.dtype)


def random_inputs(rng: np.random.Generator, graph: Graph) -> list[np.ndarray]:
    """One random array for each input of `graph`."""
    return [random_input(rng, shape_of(value), str(element_type(value))) for value in graph.inputs]


class Graph:
    """A module with one function `main` under construction."""

    def __init__(self) -> None:
        self.context = context()
        self.location = ir.Location.unknown(self.context)
        with self.location:
            self._module = ir.Module.create()
            kind = ir.TypeAttr.get(ir.FunctionType.get([], []))
            attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": kind}
            self._function = ir.Operation.create("func.func", attributes=attributes, regions=1)
            self._module.body.append(self._function)
            self._block = ir.Block.create_at_start(self._function.regions[0], [], [])
        self.inputs: list[ir.Value] = []

    def module(self, *outputs: ir.Value) -> ir.Module:
        """The finished, verified module returning `outputs`."""
        with self.location, ir.InsertionPoint(self._block):
            ir.Operation.create("func.return", operands=list(outputs))
            kind = ir.FunctionType.get([v.type for v in self.inputs], [v.type for v in outputs])
            self._function.attributes["function_type"] = ir.TypeAttr.get(kind)
        self._module.operation.verify()
        return self._module

    @contextmanager
    def building(self) -> Iterator[None]:
        """What is emitted inside goes to the end of `main`."""
        with self.location, ir.InsertionPoint(self._block):
            yield

    def input(self, shape: Sequence[int], element: str = "i8") -> ir.Value:
        with self.location:
            kind = ir.RankedTensorType.get(list(shape), ir.Type.parse(element))
            self.inputs.append(self._block.add_argument(kind, self.location))
        return self.inputs[-1]

    def const(self, values: Any, element: str) -> ir.Value:
        with self.location, ir.InsertionPoint(self._block):
            kind = ir.Type.parse(element)
            return constant(np.asarray(values).astype(numpy_dtype(kind)), kind)

    def shape(self, dims: Sequence[int]) -> ir.Value:
        with self.location, ir.InsertionPoint(self._block):
            return constant_shape(dims)

    def op(self, name: str, operands: Sequence[ir.Value], shape: Sequence[int], element: str, **attributes) -> ir.Value:
        """Append `tosa.<name>`; see `_attribute` for the spelling of attributes."""
        with self.location, ir.InsertionPoint(self._block):
            kind = ir.RankedTensorType.get([int(d) for d in shape], ir.Type.parse(element))
            found = {key: _attribute(key, value) for key, value in attributes.items()}
            return ir.Operation.create(f"tosa.{name}", [kind], list(operands), found).result

    def unary(self, name: str, x: ir.Value, element: str = "", **attributes) -> ir.Value:
        return self.op(name, [x], shape_of(x), element or str(element_type(x)), **attributes)

    def binary(self, name: str, a: ir.Value, b: ir.Value, element: str = "", **attributes) -> ir.Value:
        shape = np.broadcast_shapes(shape_of(a), shape_of(b))
        return self.op(name, [a, b], shape, element or str(element_type(a)), **attributes)

    def mul(self, a: ir.Value, b: ir.Value, element: str = "i32", shift: int = 0) -> ir.Value:
        shape = np.broadcast_shapes(shape_of(a), shape_of(b))
        return self.op("mul", [a, b, self.const([shift], "i8")], shape, element)

    def clamp(self, x: ir.Value, low: int, high: int) -> ir.Value:
        with self.location:
            bounds = {
                "min_val": ir.IntegerAttr.get(element_type(x), low),
                "max_val": ir.IntegerAttr.get(element_type(x), high),
            }
        return self.unary("clamp", x, nan_mode="PROPAGATE", **bounds)

    def reduce(self, name: str, x: ir.Value, axis: int, **attributes) -> ir.Value:
        shape = [1 if i == axis else d for i, d in enumerate(shape_of(x))]
        return self.op(name, [x], shape, str(element_type(x)), axis=axis, **attributes)

    def reshape(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        return self.op("reshape", [x, self.shape(shape)], shape, str(element_type(x)))

    def transpose(self, x: ir.Value, perms: Sequence[int]) -> ir.Value:
        shape = [shape_of(x)[i] for i in perms]
        return self.op("transpose", [x], shape, str(element_type(x)), perms=perms)

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        shape = list(shape_of(values[0]))
        shape[axis] = sum(shape_of(v)[axis] for v in values)
        return self.op("concat", values, shape, str(element_type(values[0])), axis=axis)

    def slice(self, x: ir.Value, start: Sequence[int], size: Sequence[int]) -> ir.Value:
        return self.op("slice", [x, self.shape(start), self.shape(size)], size, str(element_type(x)))

    def pad(self, x: ir.Value, padding: Sequence[int], value: float = 0) -> ir.Value:
        """`padding` holds (before, after) per axis, flattened."""
        shape = [d + padding[2 * i] + padding[2 * i + 1] for i, d in enumerate(shape_of(x))]
        element = str(element_type(x))
        return self.op("pad", [x, self.shape(padding), self.const([value], element)], shape, element)

    def tile(self, x: ir.Value, multiples: Sequence[int]) -> ir.Value:
        shape = [d * m for d, m in zip(shape_of(x), multiples, strict=True)]
        return self.op("tile", [x, self.shape(multiples)], shape, str(element_type(x)))

    def table(self, x: ir.Value, values: Any) -> ir.Value:
        """i8: 256 i8 entries; i16: 513 i16 entries, i32 result."""
        element = str(element_type(x))
        result = "i8" if element == "i8" else "i32"
        return self.op("table", [x, self.const(values, element)], shape_of(x), result)

    def rescale(
        self, x: ir.Value, element: str, multiplier: Any, shift: Any, *, input_zero: int = 0, output_zero: int = 0,
        rounding: str = "SINGLE_ROUND", scale32: bool = True,
        input_unsigned: bool = False, output_unsigned: bool = False,
    ) -> ir.Value:  # fmt: skip
        multiplier, shift = np.atleast_1d(multiplier), np.atleast_1d(shift)
        operands = [
            x,
            self.const(multiplier, "i32" if scale32 else "i16"),
            self.const(shift, "i8"),
            self.const([input_zero], str(element_type(x))),
            self.const([output_zero], element),
        ]
        return self.op(
            "rescale", operands, shape_of(x), element, scale32=scale32, rounding_mode=rounding,
            per_channel=len(multiplier) > 1, input_unsigned=input_unsigned, output_unsigned=output_unsigned,
        )  # fmt: skip

    def requantize(self, x: ir.Value, element: str, scale: float | np.ndarray, **options) -> ir.Value:
        """A RESCALE by a real factor: 32-bit multipliers, 16-bit ones where the input is i48."""
        multiplier, shift = multiplier_and_shift(scale)
        if str(element_type(x)) != "i48":
            return self.rescale(x, element, multiplier, shift, **options)
        narrow = np.minimum((multiplier.astype(np.int64) + 2**15) >> 16, 2**15 - 1)
        return self.rescale(x, element, narrow, shift - 16, scale32=False, **options)

    def conv2d(
        self, x: ir.Value, weights: Any, bias: Any, *, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1),
        input_zero: int = 0, weight_type: str = "i8",
    ) -> ir.Value:  # fmt: skip
        """`weights` is an (OC, KH, KW, IC) array or value; the result holds accumulators (i32, or i48 for i16)."""
        shape = shape_of(weights) if isinstance(weights, ir.Value) else np.shape(weights)
        return self._conv(
            "conv2d", x, weights, bias, shape[1:3], shape[0], pad, stride, dilation, input_zero, weight_type
        )

    def depthwise_conv2d(
        self, x: ir.Value, weights: Any, bias: Any, *, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1),
        input_zero: int = 0, weight_type: str = "i8",
    ) -> ir.Value:  # fmt: skip
        """`weights` is (KH, KW, C, M)."""
        shape = np.shape(weights)
        channels = shape[2] * shape[3]
        return self._conv(
            "depthwise_conv2d", x, weights, bias, shape[:2], channels, pad, stride, dilation, input_zero, weight_type
        )

    def _conv(self, name, x, weights, bias, kernel, channels, pad, stride, dilation, input_zero, weight_type):
        n, h, w, _ = shape_of(x)
        element = str(element_type(x))
        accumulator = "i48" if element == "i16" else "i32"
        height = (h + pad[0] + pad[1] - (kernel[0] - 1) * dilation[0] - 1) // stride[0] + 1
        width = (w + pad[2] + pad[3] - (kernel[1] - 1) * dilation[1] - 1) // stride[1] + 1
        operands = [
            x,
            weights if isinstance(weights, ir.Value) else self.const(weights, weight_type),
            bias if isinstance(bias, ir.Value) else self.const(bias, accumulator),
            self.const([input_zero], element),
            self.const([0], weight_type),
        ]
        return self.op(
            name, operands, (n, height, width, channels), accumulator,
            acc_type=accumulator, pad=pad, stride=stride, dilation=dilation,
        )  # fmt: skip

    def transpose_conv2d(
        self, x, weights, bias, *, stride=(1, 1), out_pad=(0, 0, 0, 0), input_zero: int = 0
    ) -> ir.Value:
        n, h, w, _ = shape_of(x)
        element = str(element_type(x))
        accumulator = "i48" if element == "i16" else "i32"
        channels, kh, kw, _ = np.shape(weights)
        shape = (
            n,
            (h - 1) * stride[0] + out_pad[0] + out_pad[1] + kh,
            (w - 1) * stride[1] + out_pad[2] + out_pad[3] + kw,
            channels,
        )
        zeros = [self.const([input_zero], element), self.const([0], "i8")]
        operands = [x, self.const(weights, "i8"), self.const(bias, accumulator), *zeros]
        return self.op(
            "transpose_conv2d", operands, shape, accumulator, acc_type=accumulator, out_pad=out_pad, stride=stride
        )

    def matmul(self, a: ir.Value, b: ir.Value, a_zero: int = 0, b_zero: int = 0) -> ir.Value:
        element = str(element_type(a))
        zeros = [self.const([a_zero], element), self.const([b_zero], element)]
        shape = (*shape_of(a)[:2], shape_of(b)[2])
        return self.op("matmul", [a, b, *zeros], shape, "i32" if element == "i8" else "i48")

    def pool(
        self,
        kind: str,
        x: ir.Value,
        kernel,
        stride=(1, 1),
        pad=(0, 0, 0, 0),
        zero: int = 0,
        out_zero: int | None = None,
    ):
        """`kind` is "max" or "avg"."""
        n, h, w, c = shape_of(x)
        element = str(element_type(x))
        height = (h + pad[0] + pad[1] - kernel[0]) // stride[0] + 1
        width = (w + pad[2] + pad[3] - kernel[1]) // stride[1] + 1
        geometry = {"kernel": kernel, "stride": stride, "pad": pad}
        if kind == "max":
            return self.op("max_pool2d", [x], (n, height, width, c), element, nan_mode="PROPAGATE", **geometry)
        zeros = [self.const([zero], element), self.const([zero if out_zero is None else out_zero], element)]
        return self.op("avg_pool2d", [x, *zeros], (n, height, width, c), element, acc_type="i32", **geometry)

    def resize(self, x: ir.Value, mode: str, scale, offset, border) -> ir.Value:
        """`scale` is (y_n, y_d, x_n, x_d), `offset` and `border` (y, x), as RESIZE's operands."""
        n, h, w, c = shape_of(x)
        height = ((h - 1) * scale[0] - offset[0] + border[0]) // scale[1] + 1
        width = ((w - 1) * scale[2] - offset[1] + border[1]) // scale[3] + 1
        element = str(element_type(x))
        if mode == "BILINEAR":
            element = {"i8": "i32", "i16": "i48"}.get(element, element)
        operands = [x, self.shape(scale), self.shape(offset), self.shape(border)]
        return self.op("resize", operands, (n, height, width, c), element, mode=mode)


_ENUMS = {"rounding_mode": "rounding_mode", "nan_mode": "nan_mode", "mode": "resize_mode"}


def _attribute(name: str, value: Any) -> ir.Attribute:
    """`axis` is i32, `perms` an i32 array, other integer sequences i64 arrays, `acc_type` a type, enums by name."""
    if isinstance(value, ir.Attribute):
        return value
    if name in _ENUMS:
        return ir.Attribute.parse(f"#tosa.{_ENUMS[name]}<{value}>")
    if name == "acc_type":
        return ir.TypeAttr.get(ir.Type.parse(value))
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)
    if name == "perms":
        return ir.DenseI32ArrayAttr.get([int(v) for v in value])
    return ir.DenseI64ArrayAttr.get([int(v) for v in value])
