"""A model's arguments and results, however nested, as the flat tensors that firmware takes and gives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from tosaic.frontend.canonical import arguments
from tosaic.support.errors import ModelError

Batch: TypeAlias = tuple[Tensor, ...]
Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def as_call(inputs: Any) -> Call:
    """Example inputs as arguments and keyword arguments: a tuple or list, a dict of keywords, or one argument.

    Arrays become tensors.
    """
    if isinstance(inputs, Mapping):
        given: Call = ((), dict(inputs))
    else:
        given = (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {})
    return pytree.tree_map_only(np.ndarray, torch.as_tensor, given)


def tensors_of(call: Call, example: Call) -> Batch:
    """The tensors among the leaves of a call, its keywords in the order of the example's.

    Raises:
        ModelError: it is nested otherwise, or holds other constants.
    """
    args, kwargs = call
    known = {name: kwargs[name] for name in example[1] if name in kwargs} | kwargs
    leaves, structure = pytree.tree_flatten((args, known))
    own, wanted = pytree.tree_flatten(example)
    if structure != wanted:
        raise ModelError("a sample is nested otherwise than the example inputs", why=f"{structure} for {wanted}")
    for one, other in zip(leaves, own, strict=True):
        if isinstance(one, Tensor) != isinstance(other, Tensor):
            raise ModelError(f"a sample has a {type(one).__name__} where the example has a {type(other).__name__}")
        if not isinstance(other, Tensor) and one != other:
            raise ModelError(f"a sample has {one!r} for the constant {other!r}", hint="what varies must be a tensor")
    return tuple(leaf for leaf, other in zip(leaves, own, strict=True) if isinstance(other, Tensor))


def result_names(program: ExportedProgram) -> tuple[str, ...]:
    """A name for each result that is computed: its keys or fields joined (`past_0`), `output_2` where it has none."""
    results, spec = arguments(program.graph.output_node())[0], program.call_spec.out_spec
    assert spec is not None
    user = results[len(results) - spec.num_leaves :]
    paths = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(len(user))), spec))[0]
    named = [path for (path, _), node in zip(paths, user, strict=True) if isinstance(node, Node)]
    names = [_name(path) or f"output_{index}" for index, path in enumerate(named)]
    return tuple(names if len(set(names)) == len(names) else (f"output_{index}" for index in range(len(names))))


def _name(path: Sequence[Any]) -> str:
    """The words of a path; empty where numbers are all that it has."""
    parts = [getattr(key, "key", getattr(key, "name", getattr(key, "idx", ""))) for key in path]
    return re.sub(r"\W", "_", "_".join(map(str, parts))) if any(isinstance(part, str) for part in parts) else ""


def flatten(program: ExportedProgram, tensors: Batch) -> None:
    """Let a program take its tensors alone, one by one, in place: what else it was exported with is constant."""
    signature, call = program.graph_signature, program.module_call_graph[0].signature
    assert call is not None
    constants = {spec.arg.name for spec in signature.input_specs if isinstance(spec.arg, ConstantArgument)}
    for node in list(program.graph.nodes):
        if node.op == "placeholder" and node.name in constants:
            program.graph.erase_node(node)
    signature.input_specs[:] = [spec for spec in signature.input_specs if spec.arg.name not in constants]
    call.in_spec = pytree.tree_structure(((0,) * len(tensors), {}))
    call.forward_arg_names = [str(name) for name in signature.user_inputs]
    program.example_inputs = tensors, {}
    program._guards_code = []  # of the nested arguments
    program.graph_module.recompile()


def resized(program: ExportedProgram, example: Call, shapes: Mapping[str, Sequence[int]]) -> Call:
    """The example with inputs of other shapes, by name: their values over and over.

    Raises:
        ModelError: there is no input of a name.
    """
    leaves, structure = pytree.tree_flatten(example)
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    for name, dims in shapes.items():
        if name not in names:
            raise ModelError(f"there is no input `{name}`", hint=f"the inputs are {', '.join(names)}")
        at = names.index(name)
        leaves[at] = torch.from_numpy(np.resize(leaves[at].numpy(), dims))
    return pytree.tree_unflatten(leaves, structure)
