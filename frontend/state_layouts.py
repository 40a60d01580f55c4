"""How states lie that products or convolutions read: as a core reads them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from tosaic.frontend.canonical import arguments, complete_arguments
from tosaic.frontend.methods import ENTER
from tosaic.frontend.rows import WRITE_ROWS
from tosaic.frontend.state import State

_PERMUTE = torch.ops.aten.permute.default
_MATMUL = torch.ops.aten.matmul.default
_CONVOLUTIONS = (torch.ops.aten.conv1d.default, torch.ops.aten.conv2d.default)
_SLICE, _CAT = torch.ops.aten.slice.Tensor, torch.ops.aten.cat.default


def as_read(program: ExportedProgram, states: Sequence[State], columns: bool) -> tuple[State, ...]:
    """The states of a program, whose last inputs and results they are; it is changed in place.

    What is put together from what it was and new frames, and is nothing but the image of convolutions, is kept with its
    channels last: so frames move as one piece, and convolutions read it as it lies.

    Args:
        columns: whether what is written by rows, or by columns, and is nothing but the second operand of `matmul`, as
            the values of attention are, is kept with its last two axes swapped. A core with vectors multiplies columns
            that lie in one piece, and else copies the whole state at each call.
    """
    given = [node for node in program.graph.nodes if node.op == "placeholder"]
    results = arguments(program.graph.output_node())[0]
    first = len(given) - len(states)
    shown, after = results[: len(results) - len(states)], results[len(results) - len(states) :]
    kept = []
    for number, state in enumerate(states):
        for readers in ((_MATMUL,), _CONVOLUTIONS) if columns else (_CONVOLUTIONS,):
            values = _values_of(given[first + number], after[number], readers)
            if values and not any(value in shown for value in values):
                order = _order_for(readers, state.initial.ndim)
                _permute(program, values, order)
                state = State(state.name, state.initial.permute(order).contiguous())
                break
        kept.append(state)
    args, kwargs = program.example_inputs or ((), {})
    program.example_inputs = (*args[: len(args) - len(states)], *(state.initial for state in kept)), kwargs
    program.graph_module.recompile()
    return tuple(kept)


def _order_for(readers: Sequence[object], ndim: int) -> tuple[int, ...]:
    """The axes of a state in the order in which these ops read them."""
    last = (ndim - 1, ndim - 2) if _MATMUL in readers else (1,)
    return (*(axis for axis in range(ndim) if axis not in last), *last)


def _values_of(before: Node, after: Node, readers: Sequence[object]) -> list[Node]:
    """What a state is from the beginning to the end, where nothing but these ops reads it; nothing of another one."""
    if before.meta["val"].ndim < 2 or not before.meta["val"].is_floating_point():
        return []
    values, read = [before], False
    for value in values:
        for user in value.users:
            if user.target is ENTER or _is_next(value, user, readers):
                values += [user] if user not in values else []
            elif user.target in readers and arguments(user)[_MATMUL in readers] is value and _reads(user, value) == 1:
                read = True
            elif user.op != "output":
                return []
    return values if read and after in values else []


def _reads(user: Node, value: Node) -> int:
    return sum(argument is value for argument in arguments(user))


def _is_next(value: Node, user: Node, readers: Sequence[object]) -> bool:
    """Whether an op makes the next value of a state of this one: rows written, or frames joined and dropped."""
    if user.target is WRITE_ROWS and _MATMUL in readers:
        x, dim, _, rows = arguments(user)
        return x is value is not rows and dim >= value.meta["val"].ndim - 2
    return user.target in (_SLICE, _CAT) and _MATMUL not in readers


def _permute(program: ExportedProgram, values: Sequence[Node], order: Sequence[int]) -> None:
    """Let values have their axes in another order; what reads one has it with these in order again."""
    back = sorted(range(len(order)), key=order.__getitem__)
    for value in values:
        for user in [user for user in value.users if user.target in (_MATMUL, *_CONVOLUTIONS)]:
            user.replace_input_with(value, _permuted(program, value, user, back, value.meta["val"]))
        if value.target is WRITE_ROWS:
            x, dim, index, rows = arguments(value)
            value.args = (x, back[dim], index, _turned(program, rows, value, order))
        elif value.target is _CAT:
            whole, dim = complete_arguments(value)
            parts = [part if part in values else _turned(program, part, value, order) for part in whole]
            value.args = (parts, back[dim])
        elif value.target is _SLICE:
            x, dim, *ends = complete_arguments(value)
            value.args = (x, back[dim], *ends)
    for value in values:
        value.meta["val"] = value.meta["val"].permute(order).contiguous()


def _turned(program: ExportedProgram, node: Node, before: Node, order: Sequence[int]) -> Node:
    """A node with its axes in an order."""
    return _permuted(program, node, before, order, node.meta["val"].permute(order).contiguous())


def _permuted(program: ExportedProgram, node: Node, before: Node, order: Sequence[int], val: Tensor) -> Node:
    with program.graph.inserting_before(before):
        made = program.graph.call_function(_PERMUTE, (node, list(order)))
    made.meta = {**before.meta, "val": val}
    return made
