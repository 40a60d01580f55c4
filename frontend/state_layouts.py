"""How a state lies that a product reads: as the second operand of `matmul` is multiplied, column by column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from tosaic.frontend.canonical import arguments
from tosaic.frontend.methods import ENTER
from tosaic.frontend.rows import WRITE_ROWS
from tosaic.frontend.state import State

_TRANSPOSE = torch.ops.aten.transpose.int
_MATMUL = torch.ops.aten.matmul.default


def by_columns(program: ExportedProgram, states: Sequence[State]) -> tuple[State, ...]:
    """The states of a program, whose last inputs and results they are; it is changed in place.

    What is written by rows, or by columns, and is nothing but the second operand of `matmul`, as the values of
    attention are, is kept with its last two axes swapped: a core multiplies columns that lie in one piece, and else
    copies the whole state at each call.
    """
    given = [node for node in program.graph.nodes if node.op == "placeholder"]
    results = arguments(program.graph.output_node())[0]
    first = len(given) - len(states)
    shown, after = results[: len(results) - len(states)], results[len(results) - len(states) :]
    kept = []
    for number, state in enumerate(states):
        values = _values_of(given[first + number], after[number])
        if values and not any(value in shown for value in values):
            state = State(state.name, _turned(state.initial))
            _transpose(program, values)
        kept.append(state)
    args, kwargs = program.example_inputs or ((), {})
    program.example_inputs = (*args[: len(args) - len(states)], *(state.initial for state in kept)), kwargs
    program.graph_module.recompile()
    return tuple(kept)


def _values_of(before: Node, after: Node) -> list[Node]:
    """What a state is from the beginning to the end, where it can be kept by columns; nothing of another one."""
    if before.meta["val"].ndim < 2 or not before.meta["val"].is_floating_point():
        return []
    values, multiplied = [before], False
    for value in values:
        for user in value.users:
            args = arguments(user)
            if user.target is ENTER or (user.target is WRITE_ROWS and _is_written(user, value)):
                values.append(user)
            elif user.target is _MATMUL and args[1] is value is not args[0]:
                multiplied = True
            elif user.op != "output":
                return []
    return values if multiplied and after in values else []


def _is_written(write: Node, value: Node) -> bool:
    x, dim, _, rows = arguments(write)
    return x is value is not rows and dim >= value.meta["val"].ndim - 2


def _transpose(program: ExportedProgram, values: Sequence[Node]) -> None:
    """Let values have their last two axes swapped; a product of one reads it with these swapped back."""
    graph = program.graph
    for value in values:
        for user in [user for user in value.users if user.target is _MATMUL]:
            with graph.inserting_before(user):
                turned = graph.call_function(_TRANSPOSE, (value, -1, -2))
            turned.meta = {**user.meta, "val": value.meta["val"]}
            user.replace_input_with(value, turned)
        if value.target is WRITE_ROWS:
            x, dim, index, rows = arguments(value)
            with graph.inserting_before(value):
                columns = graph.call_function(_TRANSPOSE, (rows, -1, -2))
            columns.meta = {**value.meta, "val": _turned(rows.meta["val"])}
            value.args = (x, 2 * value.meta["val"].ndim - 3 - dim, index, columns)
    for value in values:
        value.meta["val"] = _turned(value.meta["val"])


def _turned(x: Tensor) -> Tensor:
    return x.transpose(-1, -2).contiguous()
