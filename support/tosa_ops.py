"""The ops of TOSA 1.0: the kinds of each, and how many of its operands hold data. Said here once, for every room."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from tosaic.support.mlir import ir

MOST_AXES = 6
"""The axes of a tensor, of level 8K (TOSA 1.0, MAX_RANK)."""
MOST_JOINED = 64
"""The operands of a CONCAT, of level 8K (MAX_TENSOR_LIST_SIZE)."""


class Kind(Flag):
    """What an op does; an op may be of several kinds."""

    OTHER = 0
    CONSTANT = auto()
    """It holds a value."""
    POINTWISE = auto()
    """An element of the result follows from the elements of the data in its place, after broadcasting."""
    CONVERTING = auto()
    """It changes the element type."""
    MOVING = auto()
    """Every element of the result is one of an operand's."""
    REDUCING = auto()
    """It folds the dimension `axis` to size 1."""
    ACCUMULATING = auto()
    """Its result is wider than its data: i32 for i8, i48 for i16."""
    REAL = auto()
    """It takes floats only."""
    BOUNDED = auto()
    """On floats it is defined up to an error bound, not to the bit (section 1.8)."""
    CONTROL = auto()
    """It says how often others are executed, or what they give then."""


@dataclass(frozen=True)
class TosaOp:
    """One op.

    Args:
        data: the number of leading operands that hold data, None where all do. Behind them stand shapes, zero points,
            factors, shifts, tables and pad values.
    """

    kinds: Kind
    data: int | None


_POINTWISE, _REAL, _MOVING, _BOUNDED = Kind.POINTWISE, Kind.REAL, Kind.MOVING, Kind.BOUNDED
_ROWS: tuple[tuple[Kind, int | None, str], ...] = (
    (Kind.CONSTANT, 0, "const const_shape"),
    (_POINTWISE, 1, "abs bitwise_not clamp clz logical_not negate table"),
    (_POINTWISE, 2, "add arithmetic_right_shift bitwise_and bitwise_or bitwise_xor equal greater greater_equal"),
    (_POINTWISE, 2, "intdiv logical_and logical_left_shift logical_or logical_right_shift logical_xor"),
    (_POINTWISE, 2, "maximum minimum mul sub"),
    (_POINTWISE, 3, "select"),
    (_POINTWISE | Kind.CONVERTING, 1, "cast rescale"),
    (_POINTWISE | _MOVING, 1, "identity"),
    (_POINTWISE | _REAL, 1, "ceil floor"),
    (_POINTWISE | _REAL | _BOUNDED, 1, "cos erf exp log reciprocal rsqrt sigmoid sin tanh"),
    (_POINTWISE | _REAL | _BOUNDED, 2, "pow"),
    (_MOVING, 1, "pad reshape reverse slice tile transpose"),
    (_MOVING, 2, "gather"),
    (_MOVING, 3, "scatter"),
    (_MOVING, None, "concat"),
    (Kind.REDUCING, 1, "reduce_all reduce_any reduce_max reduce_min"),
    (Kind.REDUCING | _BOUNDED, 1, "reduce_product reduce_sum"),
    (Kind.ACCUMULATING | _BOUNDED, 1, "resize"),
    (Kind.ACCUMULATING | _BOUNDED, 2, "matmul"),
    (Kind.ACCUMULATING | _BOUNDED, 3, "conv2d conv3d depthwise_conv2d transpose_conv2d"),
    (Kind.OTHER, 1, "argmax max_pool2d"),
    (Kind.CONTROL, None, "while_loop yield"),
    (_BOUNDED, 1, "avg_pool2d"),
    (_REAL | _BOUNDED, 1, "rfft2d"),
    (_REAL | _BOUNDED, 2, "fft2d"),
)  # fmt: skip
TOSA_OPS = {f"tosa.{name}": TosaOp(kinds, data) for kinds, data, names in _ROWS for name in names.split()}
"""Every op that computes tensors from tensors, and loops; COND_IF, variables and `custom` are not among them."""


def _of(kind: Kind) -> frozenset[str]:
    return frozenset(name for name, op in TOSA_OPS.items() if kind in op.kinds)


CONSTANT = _of(Kind.CONSTANT)
POINTWISE = _of(Kind.POINTWISE)
CONVERTING = _of(Kind.CONVERTING)
MOVING = _of(Kind.MOVING)
REDUCING = _of(Kind.REDUCING)
ACCUMULATING = _of(Kind.ACCUMULATING)
REAL = _of(Kind.REAL)
BOUNDED = _of(Kind.BOUNDED)


def is_constant(op: ir.Operation | ir.OpView) -> bool:
    """Whether the op only holds a value."""
    return op.name in CONSTANT


def data_operands(op: ir.Operation) -> list[ir.Value]:
    """The operands of a TOSA op that hold data; those of a pointwise op broadcast to its result."""
    return list(op.operands)[: TOSA_OPS[op.name].data]
