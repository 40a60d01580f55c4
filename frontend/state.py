"""Buffers that a model writes: inputs and results of the program, which belong together from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from tosaic.frontend.canonical import arguments
from tosaic.frontend.interface import Batch
from tosaic.support.sequence import in_sequence


class State(NamedTuple):
    """A buffer that is kept between calls: its path in the model, and what it holds before the first one."""

    name: str
    initial: Tensor


def take_states(program: ExportedProgram) -> tuple[State, ...]:
    """Let a functional program take the buffers that it writes as its last inputs, and give them as its last results,
    both in this order. It is changed in place.
    """
    signature, output = program.graph_signature, program.graph.output_node()
    results = list(zip(signature.output_specs, arguments(output)[0], strict=True))
    written = [(str(spec.target), node) for spec, node in results if spec.kind is OutputKind.BUFFER_MUTATION]
    if not written:
        return ()
    kept = [(spec, node) for spec, node in results if spec.kind is not OutputKind.BUFFER_MUTATION]
    buffers = {str(spec.target): spec for spec in signature.input_specs if spec.kind is InputKind.BUFFER}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values, last = {**program.state_dict, **program.constants}, list(placeholders.values())[-1]
    for path, node in written:
        buffer, result = buffers[path], _copied(node, output) if node.op == "placeholder" else node
        last.append(placeholders[buffer.arg.name])
        last = placeholders[buffer.arg.name]
        signature.input_specs.remove(buffer)
        signature.input_specs.append(InputSpec(InputKind.USER_INPUT, buffer.arg, None))
        kept.append((OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=result.name), None), result))
    output.args = (tuple(node for _, node in kept),)
    signature.output_specs[:] = [spec for spec, _ in kept]
    states = tuple(State(path, values[path].detach().clone()) for path, _ in written)
    _describe_call(program, states)
    program.graph_module.recompile()
    return states


def _copied(source: Node, before: Node) -> Node:
    """A copy of an input that is kept: a node of its own can have a format."""
    with before.graph.inserting_before(before):
        copy = before.graph.call_function(torch.ops.aten.clone.default, (source,))
    copy.meta = {"val": source.meta["val"]}
    return copy


def _describe_call(program: ExportedProgram, states: Sequence[State]) -> None:
    """A call takes and gives tensors one by one, those of the states last."""
    call, taken = program.module_call_graph[0].signature, program.graph_signature.user_inputs
    assert call is not None
    call.in_spec = pytree.tree_structure(((0,) * len(taken), {}))
    call.out_spec = pytree.tree_structure((0,) * (call.out_spec.num_leaves + len(states)))
    call.forward_arg_names = list(map(str, taken))
    args, _ = program.example_inputs or ((), {})
    program.example_inputs = (*args, *(state.initial for state in states)), {}


def in_turn(program: ExportedProgram, states: Sequence[State], batches: Sequence[Batch]) -> list[Batch]:
    """The batches with the states in which they find the model, one behind the other."""
    module = program.module()
    with torch.no_grad():
        calls = in_sequence(lambda inputs: module(*inputs), batches, [state.initial for state in states])
        return [tuple(taken) for taken, _ in calls]
