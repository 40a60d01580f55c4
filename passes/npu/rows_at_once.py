"""What a loop's weights make of rows that are known before it is one product of them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import copied
from tosaic.support.loops import LOOP, captured, iteration_of
from tosaic.support.mlir import constant_value, element_type, ir, shape_of, walk
from tosaic.support.tosa_builder import emit, rebuild, reshape, tensor
from tosaic.support.values import users

_BY_ROWS = ("tosa.reshape", "tosa.conv2d", "tosa.rescale")


@register
@dataclass(frozen=True)
class RowsAtOnce(ModulePass):
    """Move the product of a row that a loop gathers in each iteration, with its RESCALE, before the loop, for all rows:
    an NPU reads the weights once, and the iterations, which no NPU runs, do not read them at all."""

    name: ClassVar[str] = "rows-at-once"

    def run(self, module: ir.Module) -> None:
        for loop in walk(module):
            if loop.name == LOOP:
                _take_before(loop)


def _take_before(loop: ir.Operation) -> None:
    known = captured(loop)
    for gather in [op.operation for op in iteration_of(loop).operations if op.operation.name == "tosa.gather"]:
        chain = _row_by_row(gather)
        if gather.operands[0] not in known or not any(op.name == "tosa.conv2d" for op in chain):
            continue
        made = chain[-1].results[0]
        n, iterations, _ = shape_of(gather.operands[0])
        width, kind = shape_of(made)[-1], element_type(made)
        with ir.InsertionPoint(loop), gather.location:
            rows = reshape(gather.operands[0], (n, 1, iterations, shape_of(gather.operands[0])[2]))
            for op in chain:
                if op.name != "tosa.reshape":
                    result = tensor((n, 1, iterations, shape_of(op.results[0])[-1]), element_type(op.results[0]))
                    rows = rebuild(op, [rows, *copied(list(op.operands)[1:])], result)
            rows = reshape(rows, (n, iterations, width))
        with ir.InsertionPoint(gather), gather.location:
            row = emit("gather", [rows, gather.operands[1]], (n, 1, width), kind)
            made.replace_all_uses_with(reshape(row, shape_of(made)))
        for op in reversed([gather, *chain]):
            op.erase()


def _row_by_row(gather: ir.Operation) -> list[ir.Operation]:
    """The ops behind a gathered row, one after another, that make as much of each row of [N, 1, T, C]."""
    chain: list[ir.Operation] = []
    value = gather.results[0]
    while len(readers := users(value)) == 1 and _is_by_rows(readers[0], value):
        chain.append(readers[0])
        (value,) = readers[0].results
    return chain


def _is_by_rows(op: ir.Operation, row: ir.Value) -> bool:
    if op.name not in _BY_ROWS or op.operands[0] != row:
        return False
    if any(constant_value(operand) is None for operand in list(op.operands)[1:]):
        return False
    n, width = shape_of(row)[0], shape_of(row)[-1]
    if op.name == "tosa.reshape":
        return shape_of(op.results[0]) == (n, 1, 1, width)
    return op.name == "tosa.rescale" or shape_of(op.operands[1])[1:3] == (1, 1)
