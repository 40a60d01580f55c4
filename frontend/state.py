"""Buffers that a model writes: inputs and results of the program, which belong together from call to call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from tosaic.frontend.calls import StatefulCalls
from tosaic.frontend.canonical import arguments, is_in_place
from tosaic.frontend.interface import Batch
from tosaic.frontend.layouts import take_scalars, with_axes
from tosaic.support.sequence import in_sequence
from tosaic.support.threads import one_thread


class State(NamedTuple):
    """A buffer that is kept between calls: its path in the model, and what it holds before the first one."""

    name: str
    initial: Tensor


def keep_written_constants(program: ExportedProgram) -> None:
    """Let tensors that a model holds, and writes, without having registered them be buffers. It is changed in place.

    A tensor may be a buffer under several names, or be written and a buffer as well, as in a cache of Hugging Face's.
    Then it is the first of these buffers: PyTorch takes no program apart that writes one tensor under two names.
    """
    specs = program.graph_signature.input_specs
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = {**program.state_dict, **program.constants}
    written = {node.args[0] for node in program.graph.nodes if is_in_place(node)}
    buffers: dict[tuple, Node] = {}
    for kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
        for spec in [spec for spec in specs if spec.kind is kind]:
            node = placeholders[spec.arg.name]
            if kind is not InputKind.BUFFER and node not in written:
                continue
            same = buffers.setdefault(_place(values[str(spec.target)]), node)
            if same is not node:
                node.replace_all_uses_with(same)
                program.graph.erase_node(node)
                specs.remove(spec)
            elif kind is not InputKind.BUFFER:
                specs[specs.index(spec)] = InputSpec(InputKind.BUFFER, spec.arg, spec.target, persistent=False)
    program.graph_module.recompile()


def _place(tensor: Any) -> tuple:
    """What two names of one tensor have in common."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def take_states(program: ExportedProgram, entered: Collection[str] = ()) -> tuple[State, ...]:
    """Let a functional program take the buffers that it writes as its last inputs, and give them as its last results,
    both in this order. It is changed in place.

    A buffer that is written before it is read is no state: nothing sees what it held, unless another method does. One
    without axes has one.

    Args:
        entered: the paths of buffers that a method reads from another.
    """
    signature, output = program.graph_signature, program.graph.output_node()
    results = list(zip(signature.output_specs, arguments(output)[0], strict=True))
    buffers = {str(spec.target): spec for spec in signature.input_specs if spec.kind is InputKind.BUFFER}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    mutated = [(str(spec.target), node) for spec, node in results if spec.kind is OutputKind.BUFFER_MUTATION]
    written = [(p, node) for p, node in mutated if p in entered or placeholders[buffers[p].arg.name].users]
    if not mutated:
        return ()
    kept = [(spec, node) for spec, node in results if spec.kind is not OutputKind.BUFFER_MUTATION]
    values, last = {**program.state_dict, **program.constants}, list(placeholders.values())[-1]
    for path, node in written:
        buffer, result = buffers[path], _given(node, output)
        last.append(placeholders[buffer.arg.name])
        last = placeholders[buffer.arg.name]
        signature.input_specs.remove(buffer)
        signature.input_specs.append(InputSpec(InputKind.USER_INPUT, buffer.arg, None))
        kept.append((OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=result.name), None), result))
    output.args = (tuple(node for _, node in kept),)
    signature.output_specs[:] = [spec for spec, _ in kept]
    states = tuple(State(path, *with_axes([values[path].detach().clone()])) for path, _ in written)
    take_scalars(program, [placeholders[buffers[path].arg.name] for path, _ in written])
    _describe_call(program, states)
    program.graph_module.recompile()
    return states


def _given(source: Node, before: Node) -> Node:
    """What a state becomes, with an axis at least; of an input that is kept, a copy: a node of its own has a format."""
    value = source.meta["val"]
    if value.ndim and source.op != "placeholder":
        return source
    graph = before.graph
    with graph.inserting_before(before):
        if value.ndim:
            made = graph.call_function(torch.ops.aten.clone.default, (source,))
        else:
            made = graph.call_function(torch.ops.aten.view.default, (source, [1]))
    made.meta = {"val": value if value.ndim else value.reshape(1)}
    return made


def _describe_call(program: ExportedProgram, states: Sequence[State]) -> None:
    """A call takes and gives tensors one by one, those of the states last."""
    call, taken = program.module_call_graph[0].signature, program.graph_signature.user_inputs
    assert call is not None
    call.in_spec = pytree.tree_structure(((0,) * len(taken), {}))
    call.out_spec = pytree.tree_structure((0,) * (call.out_spec.num_leaves + len(states)))
    call.forward_arg_names = list(map(str, taken))
    args, _ = program.example_inputs or ((), {})
    program.example_inputs = (*args, *(state.initial for state in states)), {}


def in_turn(program: ExportedProgram, states: Sequence[State], batches: Sequence[Batch]) -> StatefulCalls:
    """The batches with the states in which they find the model, one behind the other."""
    module = program.module()
    with torch.no_grad(), one_thread():
        calls = in_sequence(lambda inputs: module(*inputs), batches, [state.initial for state in states])
        return StatefulCalls((taken for taken, _ in calls), len(states))
