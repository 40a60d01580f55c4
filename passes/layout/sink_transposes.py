"""Transposes sink through ops that do not care about the order of dimensions, until they meet and cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.permutation import (
    Permutation,
    commutes,
    inverse,
    moves_only_units,
    permutation_of,
    permuted,
    transpose_behind,
)
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.passes.transposes import cancel
from tosaic.support.attributes import int_of
from tosaic.support.mlir import constant, constant_shape, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, tensor, transpose
from tosaic.support.tosa_ops import POINTWISE, REDUCING, data_operands
from tosaic.support.values import users


@register
@dataclass(frozen=True)
class SinkTransposes(ModulePass):
    """Move transposes towards the results, where they meet others and cancel."""

    name: ClassVar[str] = "sink-transposes"

    def run(self, module: ir.Module) -> None:
        rewrite(module, PATTERNS)


@pattern(*POINTWISE)
def through_pointwise(op: ir.Operation) -> Replacement:
    """`op(transpose(x), transpose(y))` -> `transpose(op(x, y))`; constants and a twin that exists are permuted back."""
    data = data_operands(op)
    rest = list(op.operands)[len(data) :]
    perm = next((found[1] for value in data if (found := transpose_behind(value)) is not None), None)
    if perm is None or not commutes(op, perm):
        return None
    sources = [_before(value, perm) for value in data]
    if any(source is None for source in sources):
        return None
    return _transposed(op, [source for source in sources if source is not None] + rest, perm)


@pattern(*REDUCING, "tosa.reverse")
def through_axis_op(op: ir.Operation) -> Replacement:
    found = transpose_behind(op.operands[0])
    if found is None:
        return None
    x, perm = found
    return _transposed(op, [x], perm, axis=perm[int_of(op, "axis")])


@pattern("tosa.concat")
def through_concat(op: ir.Operation) -> Replacement:
    perm = next((found[1] for value in op.operands if (found := transpose_behind(value)) is not None), None)
    if perm is None:
        return None
    sources = [_before(value, perm) for value in op.operands]
    if any(source is None for source in sources):
        return None
    axis = perm[int_of(op, "axis")]
    return _transposed(op, [source for source in sources if source is not None], perm, axis=axis)


@pattern("tosa.pad")
def through_pad(op: ir.Operation) -> Replacement:
    found, padding = transpose_behind(op.operands[0]), constant_value(op.operands[1])
    if found is None or padding is None:
        return None
    x, perm = found
    pairs = np.reshape(padding, (-1, 2))[list(inverse(perm))]
    return _transposed(op, [x, constant_shape(pairs.reshape(-1).tolist()), op.operands[2]], perm)


@pattern("tosa.slice", "tosa.tile")
def through_slice(op: ir.Operation) -> Replacement:
    found = transpose_behind(op.operands[0])
    shapes = [constant_value(operand) for operand in list(op.operands)[1:]]
    if found is None or any(shape is None for shape in shapes):
        return None
    x, perm = found
    back = inverse(perm)
    return _transposed(op, [x, *(constant_shape(permuted(s.tolist(), back)) for s in shapes if s is not None)], perm)


def _transposed(op: ir.Operation, operands: list[ir.Value], perm: Permutation, **changed: object) -> ir.Value:
    """`op` on the operands before `perm`, then `perm`."""
    result = op.results[0]
    shape = permuted(shape_of(result), inverse(perm))
    return transpose(rebuild(op, operands, tensor(shape, element_type(result)), **changed), perm)


def _before(value: ir.Value, perm: Permutation) -> ir.Value | None:
    """A value whose transpose by `perm` is `value`: the operand of such a transpose, or a value permuted back for
    nothing (a constant, all dimensions 1, or a transpose back that stands already)."""
    found = transpose_behind(value)
    if found is not None and found[1] == perm:
        return found[0]
    if all(size == 1 for size in shape_of(value)):
        return value
    back = inverse(perm)
    values = constant_value(value) if str(element_type(value)) not in ("i4", "i48") else None
    if values is not None:
        return constant(np.transpose(values, back))
    if moves_only_units(shape_of(value), back):
        return reshape(value, permuted(shape_of(value), back))
    stands = any(user.name == "tosa.transpose" and permutation_of(user) == back for user in users(value))
    return transpose(value, back) if stands else None


PATTERNS = [cancel, through_pointwise, through_axis_op, through_concat, through_pad, through_slice]
