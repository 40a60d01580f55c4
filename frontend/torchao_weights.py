"""Weights that torchao has quantized: matrices of four bits and less in groups, as floats on their grid.

What it quantizes at run time, activations with a scale for each token, gets a calibrated format as all else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import tosaic.frontend.torchao_import  # noqa: F401  registers the ops below
from tosaic.frontend.canonical import arguments
from tosaic.frontend.grouped_weights import GROUP_SIZES, mark_group
from tosaic.support.errors import ModelError

_DEQUANTIZE, _QUANTIZE = torch.ops.torchao.dequantize_affine.default, torch.ops.torchao.quantize_affine.default
_INNER = torch.ops.export.access_subclass_inner_tensor.default
_HINT = (
    "IntxWeightOnlyConfig and Int8DynamicActivationIntxWeightConfig of torch.int4 are compiled, groups of 32, 64, 128 "
    "and rows; or give the float model and --int4"
)


def take_torchao_weights(program: ExportedProgram) -> None:
    """Put floats in the place of weights that torchao has quantized, in place, and mark what reads them.

    Raises:
        ModelError: they are such that no kernel has them.
    """
    for node in list(program.graph.nodes):
        if node.target is not _DEQUANTIZE:
            continue
        source = arguments(node)[0]
        if source.target is _QUANTIZE:
            node.replace_all_uses_with(arguments(source)[0])
        else:
            _take(program, node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    for name, tensor in program.state_dict.items():
        if is_traceable_wrapper_subclass(tensor):
            raise ModelError(f"the weight `{name}` is a {type(tensor).__name__}, which is not compiled", hint=_HINT)


def _take(program: ExportedProgram, node: Node) -> None:
    """Of one constant."""
    source, block, _, zeros, _, low, high, *_ = arguments(node)
    placeholder = arguments(source)[0] if source.target is _INNER else source
    known = {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers}
    if placeholder.name not in known:
        raise ModelError(f"`{node.name}` dequantizes what is no weight", hint=_HINT)
    name, shape = known[placeholder.name], node.meta["val"].shape
    group = -(-shape[-1] // GROUP_SIZES[0]) * GROUP_SIZES[0] if block[-1] == shape[-1] else block[-1]
    if zeros is not None and _constant(program, known, zeros).any():
        raise ModelError(f"the weight `{name}` has zero points", why="weights are symmetric", hint=_HINT)
    if any(n != 1 for n in block[:-1]) or group % GROUP_SIZES[0]:
        raise ModelError(f"the weight `{name}` has a scale for each block of {list(block)}", hint=_HINT)
    four_bits = low >= -8 and high <= 7
    if not four_bits and block[-1] != shape[-1]:
        raise ModelError(f"the weight `{name}` has groups of more than four bits", hint=_HINT)
    target: Any = node.target
    weight = target(*(_constant(program, known, one) for one in arguments(node)))
    program.state_dict[name] = torch.nn.Parameter(weight, requires_grad=False)
    placeholder.meta["val"] = node.meta["val"]
    for user in node.users if four_bits else ():
        mark_group(user, group)
    node.replace_all_uses_with(placeholder)


def _constant(program: ExportedProgram, known: dict[str, str], argument: Any) -> Any:
    """The value of an argument."""
    if not isinstance(argument, Node):
        return argument
    if argument.target is _INNER:
        whole, inner = arguments(argument)
        return getattr(program.state_dict[known[whole.name]], inner)
    found = program.state_dict[known[argument.name]]
    assert isinstance(found, Tensor)
    return found
