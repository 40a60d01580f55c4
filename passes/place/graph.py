"""The ops of `main` as a graph without constants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tosaic.support.mlir import functions, ir
from tosaic.support.tosa_ops import is_constant


@dataclass(eq=False)
class Node:
    """One op of `main` that computes.

    Args:
        number: its position among the ops that compute, in program order; the same in every copy of the module.
    """

    number: int
    op: ir.Operation
    inputs: list[Node] = field(default_factory=list)
    users: list[Node] = field(default_factory=list)
    returned: bool = False

    @property
    def name(self) -> str:
        return self.op.name.removeprefix("tosa.")


def nodes_of(module: ir.Module) -> list[Node]:
    """The nodes of `main` in program order."""
    block = functions(module)["main"].regions[0].blocks[0]
    made: dict[ir.Operation, Node] = {}
    for view in block.operations:
        op = view.operation
        if is_constant(op):
            continue
        if op.name == "func.return":
            for operand in op.operands:
                if not isinstance(operand.owner, ir.Block) and operand.owner.operation in made:
                    made[operand.owner.operation].returned = True
            continue
        node = Node(len(made), op)
        for operand in op.operands:
            producer = None if isinstance(operand.owner, ir.Block) else made.get(operand.owner.operation)
            if producer is not None and producer not in node.inputs:
                node.inputs.append(producer)
                producer.users.append(node)
        made[op] = node
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
