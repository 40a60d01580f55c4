"""What is known of a concatenation goes through the ops behind it when the model is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import clamp_limits, rescale_of
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import int_of
from tosaic.support.mlir import constant, constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.tosa_builder import rebuild, tensor
from tosaic.support.values import bit_width, producer, users


@register
@dataclass(frozen=True)
class KnownParts(ModulePass):
    """Move RESCALE, CLAMP, and ADD of a constant before a CONCAT of which a part is constant, where its elements do not
    get wider: `f(concat(c, x))` -> `concat(f(c), f(x))`, as with the class token of a vision transformer."""

    name: ClassVar[str] = "known-parts"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [before_concat])


@pattern("tosa.rescale", "tosa.clamp")
def before_concat(op: ir.Operation) -> Replacement:
    """The chain of ops that ends with `op`, applied to each part of the CONCAT that it begins with."""
    chain = [op]
    while (source := _read(chain[0])) is not None and len(users(source)) == 1:
        concat = producer(source, "tosa.concat")
        if concat is not None:
            return _apart(concat, chain)
        above = producer(source, "tosa.rescale", "tosa.clamp", "tosa.add")
        if above is None:
            return None
        chain.insert(0, above)
    return None


def _read(op: ir.Operation) -> ir.Value | None:
    """The one tensor that an op reads, where it computes each element of its result from the one at the same place."""
    if op.name == "tosa.rescale":
        return op.operands[0] if rescale_of(op) is not None else None
    if op.name == "tosa.clamp":
        return op.operands[0] if isinstance(element_type(op.results[0]), ir.IntegerType) else None
    values = [operand for operand in op.operands if constant_value(operand) is None]
    return values[0] if len(values) == 1 and shape_of(values[0]) == shape_of(op.results[0]) else None


def _apart(concat: ir.Operation, chain: Sequence[ir.Operation]) -> Replacement:
    parts, result, axis = list(concat.operands), chain[-1].results[0], int_of(concat, "axis")
    known = [constant_value(part) is not None for part in parts]
    if not any(known) or all(known) or bit_width(result) > bit_width(concat.results[0]):
        return None
    made, start = [], 0
    for part in parts:
        end = start + shape_of(part)[axis]
        for op in chain:
            part = _applied(op, part, axis, start, end)
        made.append(part)
        start = end
    return rebuild(concat, made, result.type)


def _applied(op: ir.Operation, part: ir.Value, axis: int, start: int, end: int) -> ir.Value:
    """What an op makes of a part of what it reads, from `start` to `end` along the axis."""
    operands, read, kind = [], _read(op), element_type(op.results[0])
    for operand in op.operands:
        values = constant_value(operand)
        if operand == read:
            operands.append(part)
        elif op.name == "tosa.add" and values is not None and values.ndim and values.shape[axis] > 1:
            operands.append(constant(np.take(values, range(start, end), axis)))
        else:
            operands.append(operand)
    values = constant_value(part)
    if values is None:
        return rebuild(op, operands, tensor(shape_of(part), kind))
    return constant(_computed(op, values, operands).astype(numpy_dtype(kind)))


def _computed(op: ir.Operation, values: np.ndarray, operands: Sequence[ir.Value]) -> np.ndarray:
    scale = rescale_of(op) if op.name == "tosa.rescale" else None
    if scale is not None:
        return scale(values)
    if op.name == "tosa.clamp":
        return np.clip(values, *clamp_limits(op))
    one, other = map(constant_value, operands)
    assert one is not None and other is not None
    return one + other
