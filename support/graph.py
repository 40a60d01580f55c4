"""Ops of a block as a graph without constants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tosaic.support.functions import computing_ops, operands_of, returned
from tosaic.support.methods import methods_by_op, methods_of
from tosaic.support.mlir import functions, ir
from tosaic.support.values import producer


@dataclass(eq=False)
class Node:
    """One op that computes.

    Args:
        number: its position among the ops that compute, in program order; the same in every copy of the module.
        returned: whether the block gives one of its results.
        method: the number of the method that it belongs to.
    """

    number: int
    op: ir.Operation
    inputs: list[Node] = field(default_factory=list)
    users: list[Node] = field(default_factory=list)
    returned: bool = False
    method: int = 0

    @property
    def name(self) -> str:
        return self.op.name.removeprefix("tosa.")


def nodes_of(module: ir.Module) -> list[Node]:
    """The nodes of `main` in program order."""
    main = functions(module)["main"]
    nodes = graph_of(computing_ops(main), returned(main))
    if methods_of(main):
        methods = methods_by_op(main)
        for node in nodes:
            node.method = methods.get(node.op, 0)
    return nodes


def graph_of(ops: Iterable[ir.Operation], results: Iterable[ir.Value]) -> list[Node]:
    """A node for each of `ops`, which are in program order; `results` are what their block gives."""
    made: dict[ir.Operation | None, Node] = {}
    for op in ops:
        node = Node(len(made), op)
        for maker in (made.get(producer(operand)) for operand in operands_of(op)):
            if maker is not None and maker not in node.inputs:
                node.inputs.append(maker)
                maker.users.append(node)
        made[op] = node
    for value in results:
        if (maker := made.get(producer(value))) is not None:
            maker.returned = True
    return list(made.values())


def is_convex(group: Iterable[Node]) -> bool:
    """Whether no path leaves `group` and comes back."""
    inside = set(group)
    last = max(node.number for node in inside)
    seen: set[Node] = set()
    pending = [user for node in inside for user in node.users if user not in inside]
    while pending:
        node = pending.pop()
        if node in seen or node.number > last:
            continue
        seen.add(node)
        if any(user in inside for user in node.users):
            return False
        pending.extend(node.users)
    return True
