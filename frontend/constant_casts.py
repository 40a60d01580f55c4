"""Weights that a file holds in a narrower type than it computes with, f16 or integers with scales: constants again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.support.mlir import constant, constant_value, element_type, ir, numpy_dtype, shape_of, walk

_RULES: dict[str, Callable[..., np.ndarray]] = {
    "tosa.cast": lambda x: x,
    "tosa.sub": np.subtract,
    "tosa.mul": lambda x, factor, _: x * factor,
}


def fold_constants(main: ir.Operation) -> None:
    """Compute casts from f16 or integers to f32, and what scales these, where they depend on constants alone."""
    for op in walk(main):
        if op.name in _RULES and str(element_type(op.results[0])) == "f32":
            arrays = [constant_value(operand) for operand in op.operands]
            known = [array for array in arrays if array is not None]
            if len(known) == len(arrays):
                _replace(op, known)


def _replace(op: ir.Operation, operands: list[np.ndarray]) -> None:
    dtype, shape = numpy_dtype(element_type(op.results[0])), shape_of(op.results[0])
    array = _RULES[op.name](*operands).astype(dtype)
    with ir.InsertionPoint(op), op.location:
        op.results[0].replace_all_uses_with(constant(np.broadcast_to(array, shape)))
    op.erase()
