"""Pointwise f32 ops in numpy float64, to fill tables."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tosaic.support.mlir import ir

_erf = np.vectorize(math.erf, otypes=[np.float64])

_PLAIN: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "add": np.add,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": _erf,
    "exp": np.exp,
    "floor": np.floor,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "identity": np.positive,
    "log": np.log,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": np.power,
    "reciprocal": np.reciprocal,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select": np.where,
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x)))),
    "sin": np.sin,
    "sub": np.subtract,
    "tanh": np.tanh,
}
# Operands that are not values of the function: result shifts and zero points.
_VALUE_OPERANDS = {"mul": 2, "negate": 1}


def is_pointwise(op: ir.Operation) -> bool:
    """Whether `evaluate` knows the op."""
    return op.name.removeprefix("tosa.") in {*_PLAIN, "clamp", "mul", "negate"}


def value_operands(op: ir.Operation) -> list[ir.Value]:
    """The operands that the op is a function of."""
    return list(op.operands)[: _VALUE_OPERANDS.get(op.name.removeprefix("tosa."))]


def evaluate(op: ir.Operation, operands: list[np.ndarray]) -> np.ndarray:
    """The op on float64 (or bool) arrays; infinities and NaNs as IEEE 754 has them."""
    name = op.name.removeprefix("tosa.")
    with np.errstate(all="ignore"):
        if name == "clamp":
            low, high = (ir.FloatAttr(op.attributes[key]).value for key in ("min_val", "max_val"))
            return np.clip(operands[0], low, high)
        if name == "mul":
            return operands[0] * operands[1]
        if name == "negate":
            return -operands[0]
        return _PLAIN[name](*operands)
