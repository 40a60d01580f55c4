"""Attributes of an op as Python values."""

from __future__ import annotations

from tosaic.support.mlir import ir


def int_of(op: ir.Operation, name: str) -> int:
    """An integer attribute."""
    return ir.IntegerAttr(op.attributes[name]).value


def ints_of(op: ir.Operation, name: str) -> tuple[int, ...]:
    """An array of i32 or i64."""
    return tuple(op.attributes[name])


def float_of(op: ir.Operation, name: str) -> float:
    """A float attribute."""
    return ir.FloatAttr(op.attributes[name]).value


def bool_of(op: ir.Operation, name: str) -> bool:
    """A boolean attribute."""
    return ir.BoolAttr(op.attributes[name]).value


def text_of(op: ir.Operation, name: str) -> str:
    """A string, or the name behind a symbol."""
    return op.attributes[name].value


def enum_of(op: ir.Operation, name: str) -> str:
    """The word of an enum of TOSA's, e.g. `SINGLE_ROUND`."""
    return str(op.attributes[name]).partition("<")[2].rstrip(">")
