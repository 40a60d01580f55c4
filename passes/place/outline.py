"""Groups of ops become private functions, constants inside, and `main` a list of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tosaic.support.functions import body_of, extract, inputs_of, number_of_states, operands_of, returned
from tosaic.support.graph import Node
from tosaic.support.mlir import functions, ir
from tosaic.support.tosa_ops import is_constant
from tosaic.support.values import producer, readers, users


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


def outline(module: ir.Module, groups: Sequence[Group]) -> None:
    """Replace each group by a call of a new private function, in place.

    Afterwards `main` holds constants, reshapes and calls, ordered by their operands.
    """
    main = functions(module)["main"]
    block = body_of(main)
    for group in groups:
        _outline_one(module, group)
    for op in block.operations:
        if "tosaic.reason" in op.attributes:
            del op.attributes["tosaic.reason"]
    _sort(block)
    _change_states_last(main)
    _drop_unused_constants(block)


def _outline_one(module: ir.Module, group: Group) -> None:
    ops = [node.op for node in group.nodes]
    inputs, inside = inputs_of(ops), set(ops)
    outputs = [value for op in ops for value in op.results if any(user not in inside for user in users(value))]
    extract(module, group.symbol, ops, inputs, outputs, sym_visibility=ir.StringAttr.get("private"),
            **{"tosaic.processor": ir.StringAttr.get(group.processor)})  # fmt: skip
    call = ir.Operation.create(
        "func.call",
        results=[value.type for value in outputs],
        operands=inputs,
        attributes={"callee": ir.FlatSymbolRefAttr.get(group.symbol)},
        loc=ops[-1].location,
        ip=ir.InsertionPoint(ops[-1]),
    )
    for old, new in zip(outputs, call.results, strict=True):
        old.replace_all_uses_with(new)
    for op in reversed(ops):
        op.erase()


def _sort(block: ir.Block) -> None:
    """Move each op behind the ops it reads, keeping program order otherwise."""
    pending = [op.operation for op in block.operations]
    terminator = pending.pop()
    placed: set[ir.Operation] = set()
    while pending:
        waiting = []
        for op in pending:
            if all((maker := producer(operand)) is None or maker in placed for operand in operands_of(op)):
                op.move_before(terminator)
                placed.add(op)
            else:
                waiting.append(op)
        assert len(waiting) < len(pending), "a group is not convex"
        pending = waiting


def _change_states_last(main: ir.Operation) -> None:
    """Let calls that change a state follow all that read what it was, where nothing else reads what it becomes: so the
    new value may lie where the old one does."""
    arguments, results, count = list(body_of(main).arguments), returned(main), number_of_states(main)
    for old, new in zip(arguments[len(arguments) - count :], results[len(results) - count :], strict=True):
        changes, reading = [*_views_of(new)], readers(old)
        if not changes or changes[-1] not in reading or any(len(users(op.results[0])) > 1 for op in changes):
            continue
        order = {op.operation: number for number, op in enumerate(body_of(main).operations)}
        last = max(reading, key=order.__getitem__)
        for op in changes if last != changes[-1] else ():
            op.move_after(last)


def _views_of(value: ir.Value) -> Iterator[ir.Operation]:
    """The reshapes behind what makes a value, and that, the last first; none of an argument."""
    while (op := producer(value)) is not None:
        yield op
        if op.name != "tosa.reshape":
            return
        value = op.operands[0]


def _drop_unused_constants(block: ir.Block) -> None:
    for op in reversed([op.operation for op in block.operations]):
        if is_constant(op) and not users(op.results[0]):
            op.erase()
