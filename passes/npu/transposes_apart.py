"""Each TRANSPOSE of a convolution's result as a part of that or apart, whichever is cheaper on the NPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, copied, to_cheapest
from tosaic.passes.npu.cheapest_transposes import merged, transposed
from tosaic.passes.permutation import permutation_of
from tosaic.support.functions import inputs_of
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import rebuild
from tosaic.support.values import multiplications, producer, users


@register
@dataclass(frozen=True)
class TransposesApart(ModulePass):
    """Keep TRANSPOSEs apart from the convolutions before them where that costs the NPU of `target` fewer cycles.

    Vela fuses a TRANSPOSE of an Ethos-U85 into the convolution that it reads, which may then have its weights fetched
    again for each block. It fuses none of other dimensions than the convolution's.
    """

    name: ClassVar[str] = "transposes-apart"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.transpose")


def _forms(op: ir.Operation) -> tuple[Sequence[ir.Operation], Sequence[Form]]:
    shape, perm = shape_of(op.operands[0]), permutation_of(op)
    before, (sizes, order) = _convolution_before(op), merged(shape, perm)
    if not before or (sizes, order) == (shape, perm):
        return [op], []
    return [*before, op], [partial(_apart, before, sizes, order, shape_of(op.results[0]))]


def _convolution_before(op: ir.Operation) -> list[ir.Operation]:
    """The convolution or product whose result alone, rescaled and looked up, an op reads, and what lies between."""
    ops: list[ir.Operation] = []
    source = op.operands[0]
    while len(users(source)) == 1 and (maker := producer(source)) is not None:
        ops.insert(0, maker)
        if multiplications(maker):
            return ops
        if maker.name not in ("tosa.rescale", "tosa.clamp", "tosa.table"):
            break
        source = maker.operands[0]
    return []


def _apart(
    before: Sequence[ir.Operation], sizes: Sequence[int], order: Sequence[int], result: Sequence[int], *read: ir.Value
) -> ir.Value:
    known = dict(zip(inputs_of(before), read, strict=True))
    for op in before:
        operands = [known.get(operand) or copied([operand])[0] for operand in op.operands]
        known[op.results[0]] = rebuild(op, operands, op.results[0].type)
    return transposed(sizes, order, result, known[before[-1].results[0]])
