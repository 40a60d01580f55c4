"""What the MVE families recognize: one weighted op, its RESCALE, and of int8 an optional CLAMP and TABLE."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernel import Workload
from tosaic.support.attributes import bool_of, enum_of, float_of, int_of, ints_of
from tosaic.support.functions import returned
from tosaic.support.mlir import constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.values import is_argument

INT8 = np.dtype(np.int8)
INT32 = np.dtype(np.int32)
F32 = np.dtype(np.float32)
_EPILOGUES = [["tosa.rescale", *clamp, *table] for clamp in ([], ["tosa.clamp"]) for table in ([], ["tosa.table"])]


@dataclass(frozen=True)
class VectorEpilogue:
    """A RESCALE from int32 for each channel, and of int8 the clamp of its result and a TABLE of 256 entries after that.

    Args:
        element: the type of the result.
    """

    element: np.dtype
    multiplier: np.ndarray
    shift: np.ndarray
    zero_point: int
    low: int
    high: int
    table: np.ndarray | None

    @property
    def attributes(self) -> dict[str, object]:
        """What the code depends on."""
        limits = np.iinfo(self.element)
        clamped = (self.low, self.high) != (limits.min, limits.max)
        wide = {} if self.element == INT8 else {"result": self.element.name}
        return {"form": self.form, "clamped": clamped, "table": self.table is not None, **wide}

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """What goes into the params; `range` is zero point, lowest and highest output."""
        constants = {
            "multiplier": self.multiplier,
            "shift": self.shift,
            "range": np.array([self.zero_point, self.low, self.high], np.int32),
        }
        return constants if self.table is None else {**constants, "table": self.table}

    @property
    def form(self) -> str:
        """What shifts allow: no other than 31 (`round`), any (`left`), or to the right."""
        if (self.shift == 31).all():
            return "round"
        return "left" if (self.shift < 32).any() else "right"


def is_chain(ops: list[ir.Operation], function: ir.Operation) -> bool:
    """Whether each op feeds its first operand from the one before, and the function returns the last one only."""
    linked = all(after.operands[0] == before.results[0] for before, after in itertools.pairwise(ops))
    return linked and returned(function) == [ops[-1].results[0]]


def constants_after_first(op: ir.Operation) -> list[np.ndarray] | None:
    """The constants behind all operands but the first, None where one of them is computed."""
    constants = [constant_value(operand) for operand in list(op.operands)[1:]]
    known = [constant for constant in constants if constant is not None]
    return known if len(known) == len(constants) else None


def dtype_of(value: ir.Value) -> np.dtype:
    """The numpy dtype of a tensor value's elements."""
    return numpy_dtype(element_type(value))


def match_epilogue(ops: list[ir.Operation], channels: int, wide: bool = False) -> VectorEpilogue | None:
    """The epilogue that `ops` (a RESCALE, perhaps a CLAMP, perhaps a TABLE) form, None where they are anything else.

    Args:
        wide: whether it may be a RESCALE to int16 or int32 alone.
    """
    if [op.name for op in ops] not in _EPILOGUES:
        return None
    rescale = ops[0]
    element = dtype_of(rescale.results[0])
    if dtype_of(rescale.operands[0]) != INT32 or (element != INT8 and (not wide or len(ops) > 1)):
        return None
    if enum_of(rescale, "rounding_mode") != "SINGLE_ROUND":
        return None
    flags = {name: bool_of(rescale, name) for name in ("scale32", "input_unsigned", "output_unsigned")}
    operands = constants_after_first(rescale)
    if flags != {"scale32": True, "input_unsigned": False, "output_unsigned": False}:
        return None
    if operands is None or int(operands[2].item()) != 0:
        return None
    multiplier, shift, _, zero_point = operands
    low, high = np.iinfo(element).min, np.iinfo(element).max
    table = None
    for op in ops[1:]:
        if op.name == "tosa.clamp":
            low, high = int_of(op, "min_val"), int_of(op, "max_val")
        else:
            found = constants_after_first(op)
            if found is None or found[0].dtype != INT8:
                return None
            (table,) = found
    return VectorEpilogue(
        element,
        np.broadcast_to(multiplier.astype(np.int32), (channels,)),
        np.broadcast_to(shift.astype(np.int8), (channels,)),
        int(zero_point.item()),
        low,
        high,
        table,
    )


@dataclass(frozen=True)
class Geometry:
    """Where a 2-D window op reads: NHWC input (batch, height, width, channels), output (batch, rows, columns)."""

    batch: int
    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    dilation: tuple[int, int]
    rows: int
    columns: int

    @staticmethod
    def of(attributes: Mapping[str, object]) -> Geometry:
        """The geometry in a workload's attributes."""
        return Geometry(**{name: attributes[name] for name in Geometry.__dataclass_fields__})  # type: ignore[arg-type]

    @property
    def pixels(self) -> int:
        """Output pixels of the whole batch."""
        return self.batch * self.rows * self.columns

    @property
    def depth(self) -> int:
        """Input bytes behind one output."""
        return self.kernel[0] * self.kernel[1] * self.channels

    @property
    def span(self) -> tuple[int, int]:
        """Input rows and columns between the first and the last that a window touches, both included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))  # type: ignore[return-value]

    @property
    def flattened(self) -> Geometry:
        """The geometry as one row of pixels where the windows lie back to back, else as it is."""
        if not self.dense:
            return self
        pixels, one = self.pixels, (1, 1)
        return Geometry(1, 1, pixels, self.depth, one, one, (0, 0, 0, 0), one, 1, pixels)

    @property
    def dense(self) -> bool:
        """Whether the windows of successive outputs lie back to back in the input."""
        pointwise = self.kernel == (1, 1) and self.stride == (1, 1)
        whole = self.kernel == (self.height, self.width) and self.dilation == (1, 1)
        return self.pad == (0, 0, 0, 0) and (pointwise or (whole and (self.rows, self.columns) == (1, 1)))


def match_bounds(ops: list[ir.Operation]) -> np.ndarray | None:
    """f32 (2,): the bounds of the CLAMP of floats that `ops` are, infinite for none; None where they are more.

    A NaN stays one.
    """
    if not ops:
        return np.array([-np.inf, np.inf], np.float32)
    if [op.name for op in ops] != ["tosa.clamp"] or dtype_of(ops[0].results[0]) != F32:
        return None
    if "nan_mode" in ops[0].attributes and enum_of(ops[0], "nan_mode") != "PROPAGATE":
        return None
    return np.array([float_of(ops[0], "min_val"), float_of(ops[0], "max_val")], np.float32)


def match_window(op: ir.Operation, element: np.dtype = INT8, weights: np.dtype = INT8) -> Geometry | None:
    """The geometry of a CONV2D or DEPTHWISE_CONV2D of an argument with constant weights, zero point 0.

    Args:
        element, weights: the types of the argument and of the weights.
    """
    if not is_argument(op.operands[0]) or dtype_of(op.operands[0]) != element:
        return None
    constants = constants_after_first(op)
    if constants is None or dtype_of(op.operands[1]) != weights:
        return None
    if "i4" in str(ir.RankedTensorType(op.operands[1].type).element_type) or int(constants[3].item()) != 0:
        return None
    batch, height, width, channels = shape_of(op.operands[0])
    _, rows, columns, _ = shape_of(op.results[0])
    kernel = constants[0].shape[1:3] if op.name == "tosa.conv2d" else constants[0].shape[:2]
    stride, pad, dilation = (ints_of(op, name) for name in ("stride", "pad", "dilation"))
    return Geometry(batch, height, width, channels, kernel, stride, pad, dilation, rows, columns)  # type: ignore[arg-type]


def match_f32(
    ops: list[ir.Operation], function: ir.Operation
) -> tuple[Geometry, np.ndarray, np.ndarray, np.ndarray] | None:
    """(geometry, weights, bias, bounds) of a window op of floats on an argument and an optional CLAMP; else None."""
    if not is_chain(ops, function):
        return None
    geometry, operands = match_window(ops[0], F32, F32), constants_after_first(ops[0])
    bounds = match_bounds(ops[1:])
    if geometry is None or operands is None or bounds is None:
        return None
    return geometry, operands[0], operands[1], bounds


def fold_zero_point(bias: np.ndarray, weights: np.ndarray, zero_point: int) -> np.ndarray:
    """int32 (channels,): the bias less `zero_point` times the sum of each channel's weights (channels, ...)."""
    sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    return (bias.astype(np.int64) - zero_point * sums).astype(np.int32)


def workload(kind: str, attributes: Mapping[str, object], constants: Mapping[str, np.ndarray]) -> Workload:
    """A workload whose key is all of `attributes`."""
    key = " ".join(f"{name}={_text(value)}" for name, value in attributes.items())
    return Workload(kind, f"{kind} {key}", attributes, constants)


def number(workload: Workload, name: str) -> int:
    """An integer attribute of a workload."""
    value = workload.attributes[name]
    assert isinstance(value, int), f"{name} of {workload.key} is no integer"
    return value


def numbers(workload: Workload, name: str) -> tuple[int, ...]:
    """An attribute of a workload that is several integers."""
    value = workload.attributes[name]
    assert isinstance(value, tuple), f"{name} of {workload.key} is one value"
    return value


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
