"""A transpose that met no other goes back to where it moves the fewest bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.permutation import Permutation, commutes, permutation_of, permuted
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, tensor, transpose
from tosaic.support.tosa_ops import POINTWISE, data_operands
from tosaic.support.values import bit_width, producer, users


@register
@dataclass(frozen=True)
class RaiseTransposes(ModulePass):
    """Move transposes of wide elements up to the narrow ones that they are computed from."""

    name: ClassVar[str] = "raise-transposes"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [raise_to_narrower])


@pattern("tosa.transpose")
def raise_to_narrower(op: ir.Operation) -> Replacement:
    """`transpose(f(x))` -> `f(transpose(x))` for a chain f of pointwise ops on x alone, where x has fewer bits."""
    perm, value = permutation_of(op), op.operands[0]
    chain: list[ir.Operation] = []
    least, length = bit_width(value), 0
    while (found := _step(value, perm)) is not None:
        maker, value = found
        chain.append(maker)
        if bit_width(value) < least:
            least, length = bit_width(value), len(chain)
    if not length:
        return None
    source = _computed(chain[length - 1])[0]
    result = transpose(source, perm)
    for maker in reversed(chain[:length]):
        operands = [_permuted(operand, perm, result, index, maker) for index, operand in enumerate(maker.operands)]
        kind = tensor(permuted(shape_of(maker.results[0]), perm), element_type(maker.results[0]))
        result = rebuild(maker, operands, kind)
    return result


def _step(value: ir.Value, perm: Permutation) -> tuple[ir.Operation, ir.Value] | None:
    """The pointwise op that makes `value` for one reader from one computed operand of the same shape, and that."""
    maker = producer(value, *POINTWISE)
    if maker is None or len(users(value)) > 1 or not commutes(maker, perm):
        return None
    computed = _computed(maker)
    if len(computed) != 1 or shape_of(computed[0]) != shape_of(value):
        return None
    return maker, computed[0]


def _computed(op: ir.Operation) -> list[ir.Value]:
    return [operand for operand in data_operands(op) if constant_value(operand) is None]


def _permuted(operand: ir.Value, perm: Permutation, moved: ir.Value, index: int, op: ir.Operation) -> ir.Value:
    """An operand of `op` after `perm`: `moved` for the computed one, constants of data permuted."""
    if index >= len(data_operands(op)):
        return operand
    values = constant_value(operand)
    return moved if values is None else constant(np.transpose(values, perm), element_type(operand))
