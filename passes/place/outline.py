"""Groups of ops become private functions, constants inside, and `main` a list of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tosaic.passes.place.graph import Node
from tosaic.support.functions import body_of
from tosaic.support.mlir import functions, ir
from tosaic.support.tosa_ops import is_constant
from tosaic.support.values import producer, users


@dataclass(frozen=True)
class Group:
    """What becomes one function.

    Args:
        symbol: the function's name.
        nodes: in program order.
    """

    symbol: str
    processor: Literal["cpu", "npu"]
    nodes: list[Node]


def outline(module: ir.Module, groups: Sequence[Group], reasons: dict[Node, str]) -> None:
    """Replace each group by a call of a new private function, in place.

    Afterwards `main` holds constants, reshapes and calls, ordered by their operands.
    """
    main = functions(module)["main"]
    block = body_of(main)
    for group in groups:
        _outline_one(module, main, group, reasons)
    _sort(block)
    _drop_unused_constants(block)


def _outline_one(module: ir.Module, main: ir.Operation, group: Group, reasons: dict[Node, str]) -> None:
    inside = {node.op for node in group.nodes}
    inputs = _inputs(group, inside)
    outputs = [
        result
        for node in group.nodes
        for result in node.op.results
        if any(user not in inside for user in users(result))
    ]
    kind = ir.FunctionType.get([value.type for value in inputs], [value.type for value in outputs])
    place = group.nodes[-1].op.location
    attributes = {
        "sym_name": ir.StringAttr.get(group.symbol),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(kind),
        "tosaic.processor": ir.StringAttr.get(group.processor),
    }
    function = ir.Operation.create(
        "func.func", attributes=attributes, regions=1, loc=place, ip=ir.InsertionPoint(module.body)
    )
    block = function.regions[0].blocks.append(*kind.inputs, arg_locs=[place] * len(inputs))
    values = dict(zip(inputs, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for node in group.nodes:
            for operand in node.op.operands:
                if operand not in values:
                    values[operand] = operand.owner.operation.clone().results[0]
            copy = node.op.clone()
            for index, operand in enumerate(list(node.op.operands)):
                copy.operation.operands[index] = values[operand]
            _explain(copy.operation, node, group, reasons)
            values.update(zip(node.op.results, copy.operation.results, strict=True))
        ir.Operation.create("func.return", operands=[values[value] for value in outputs], loc=place)
    call = ir.Operation.create(
        "func.call",
        results=kind.results,
        operands=inputs,
        attributes={"callee": ir.FlatSymbolRefAttr.get(group.symbol)},
        loc=place,
        ip=ir.InsertionPoint(group.nodes[-1].op),
    )
    for old, new in zip(outputs, call.results, strict=True):
        old.replace_all_uses_with(new)
    for node in reversed(group.nodes):
        node.op.erase()


def _inputs(group: Group, inside: set[ir.Operation]) -> list[ir.Value]:
    found: list[ir.Value] = []
    for node in group.nodes:
        for operand in node.op.operands:
            maker = producer(operand)
            internal = maker is not None and (maker in inside or is_constant(maker))
            if not internal and operand not in found:
                found.append(operand)
    return found


def _explain(copy: ir.Operation, node: Node, group: Group, reasons: dict[Node, str]) -> None:
    if group.processor == "npu":
        copy.attributes["tosaic.op"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), node.number)
    elif reasons.get(node):
        copy.attributes["tosaic.reason"] = ir.StringAttr.get(reasons[node])


def _sort(block: ir.Block) -> None:
    """Move each op behind the ops it reads, keeping program order otherwise."""
    pending = [op.operation for op in block.operations]
    terminator = pending.pop()
    placed: set[ir.Operation] = set()
    while pending:
        waiting = []
        for op in pending:
            if all((maker := producer(operand)) is None or maker in placed for operand in op.operands):
                op.move_before(terminator)
                placed.add(op)
            else:
                waiting.append(op)
        assert len(waiting) < len(pending), "a group is not convex"
        pending = waiting


def _drop_unused_constants(block: ir.Block) -> None:
    for op in reversed([op.operation for op in block.operations]):
        if is_constant(op) and not users(op.results[0]):
            op.erase()
