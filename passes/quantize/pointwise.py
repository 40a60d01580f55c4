"""Pointwise f32 ops in numpy float64, to fill tables."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tosaic.support.attributes import float_of
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
    "mul": np.multiply,
    "negate": np.negative,
    "pow": np.power,
    "reciprocal": np.reciprocal,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select": np.where,
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x)))),
    "sin": np.sin,
    "sub": np.subtract,
    "tanh": np.tanh,
}


def is_known(op: ir.Operation) -> bool:
    """Whether `evaluate` knows the op."""
    return op.name.removeprefix("tosa.") in {*_PLAIN, "clamp"}


def evaluate(op: ir.Operation, data: list[np.ndarray]) -> np.ndarray:
    """The op on float64 (or bool) arrays, one for each operand of data; infinities and NaNs as IEEE 754 has them."""
    with np.errstate(all="ignore"):
        if op.name == "tosa.clamp":
            low, high = (float_of(op, name) for name in ("min_val", "max_val"))
            return np.clip(data[0], low, high)
        return _PLAIN[op.name.removeprefix("tosa.")](*data)
