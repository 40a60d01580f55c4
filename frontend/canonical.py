"""One vocabulary for quantizer and importer: functional ATen, composites whole, attention taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._export.utils import _is_preservable_cia_op, _special_op_to_preserve_cia
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.exported_program import _decompose_exported_program
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_structure

import tosaic.frontend.torchao_import  # noqa: F401  registers the ops below
from tosaic.frontend.masks import MASKED
from tosaic.frontend.recurrent_shapes import shapes_without_steps
from tosaic.support.errors import ModelError

_QD = torch.ops.quantized_decomposed
QUANTIZE = (_QD.quantize_per_tensor.default, _QD.quantize_per_channel.default)
DEQUANTIZE = (_QD.dequantize_per_tensor.default, _QD.dequantize_per_channel.default)
TRANSPOSES = (torch.ops.aten.permute.default, torch.ops.aten.t.default, torch.ops.aten.transpose.int)


_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


def arguments(node: Node) -> tuple[Any, ...]:
    """A node's positional arguments; fx types them too narrowly to be of use."""
    return node.args


def complete_arguments(node: Node) -> tuple[Any, ...]:
    """The arguments in the order of the op's schema, defaults filled in."""
    target: Any = node.target
    missing = target._schema.arguments[len(node.args) :]
    return (*node.args, *(node.kwargs.get(one.name, one.default_value) for one in missing))


def is_float(argument: object) -> bool:
    """Whether an argument is a node that gives float32, or a list that begins with it."""
    value = argument.meta.get("val") if isinstance(argument, Node) else None
    if isinstance(value, list | tuple):
        value = value[0]
    return isinstance(value, Tensor) and value.dtype == torch.float32


def is_quantized(program: ExportedProgram) -> bool:
    """Whether the graph already holds quantize or dequantize ops."""
    return any(node.target in QUANTIZE + DEQUANTIZE for node in program.graph.nodes)


def placeholders(program: ExportedProgram) -> list[Node]:
    """The user's inputs, in order; parameters and buffers are none."""
    wanted = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted]


def computed(program: ExportedProgram) -> Iterator[Node]:
    """The nodes in use that depend on the user's inputs or on chance; all others are constants or assertions."""
    dependent = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if (
            node.op == "call_function"
            and node.users
            and (any(source.name in dependent for source in node.all_input_nodes) or is_random(node))
        ):
            dependent.add(node.name)
            yield node


def is_in_place(node: Node) -> bool:
    """Whether a node writes its first operand; its canonical form does not."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def is_random(node: Node) -> bool:
    """Whether a node draws numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def canonical(
    program: ExportedProgram,
    taken_apart: Mapping[Any, Callable] = MappingProxyType({}),
    whole: Collection[Any] = (),
) -> ExportedProgram:
    """The program without in-place ops, dropout or flatten; softmax, layer_norm, gelu and their like stay one op.

    Where nothing is to be done, it is the same object.

    Args:
        taken_apart: decompositions of ops that do not stay.
        whole: composite ops that stay where those are made of them, as those of the program do.
    """
    program = _with_views(program)
    fused = any(node.target is _ATTENTION for node in program.graph.nodes)
    if program.dialect == "TRAINING" or fused or taken_apart:
        program = _run_decompositions(program, {**taken_apart, _ATTENTION: _attention}, whole)
    return _with_plain_results(_without_empty_parts(_without_input_mutations(program)))


def _run_decompositions(
    program: ExportedProgram, taken_apart: Mapping[Any, Callable], whole: Collection[Any]
) -> ExportedProgram:
    """The program with the ops of a table taken apart.

    `ExportedProgram.run_decompositions` prepares each of PyTorch's 531 composite ops, which takes longer than all else.
    """
    graphs = [part.graph for part in program.graph_module.modules() if isinstance(part, GraphModule)]
    named = {node.target for graph in graphs for node in graph.nodes}
    ops = [op for op in named.union(whole, taken_apart) if isinstance(op, OpOverload) and _is_preservable_cia_op(op)]
    with shapes_without_steps():
        return _decompose_exported_program(
            program,
            cia_to_decomp={op: taken_apart.get(op, _special_op_to_preserve_cia) for op in ops},
            python_decomp_table={op: made for op, made in taken_apart.items() if op not in ops},
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )


def _with_views(program: ExportedProgram) -> ExportedProgram:
    """Copies of views, as ExecuTorch's passes write them, are views: nothing is written over here."""
    for node in program.graph.nodes:
        target: Any = node.target
        if node.op != "call_function" or torch.Tag.view_copy not in getattr(target, "tags", ()):
            continue
        view = getattr(torch.ops.aten, target.overloadpacket.__name__.removesuffix("_copy"), None)
        if view is not None and target is not torch.ops.aten.lift_fresh_copy.default:
            node.target = getattr(view, target._overloadname)
    return program


def _without_input_mutations(program: ExportedProgram) -> ExportedProgram:
    """What a model writes over its inputs is no result of it.

    Raises:
        ModelError: it writes over its parameters.
    """
    specs, output = program.graph_signature.output_specs, program.graph.output_node()
    for spec in specs:
        if spec.kind is OutputKind.PARAMETER_MUTATION:
            raise ModelError(
                f"the model writes to its parameter `{spec.target}`",
                hint="a state that is kept is a buffer; a model that trains is exported after .eval()",
            )
    kept = [index for index, spec in enumerate(specs) if spec.kind is not OutputKind.USER_INPUT_MUTATION]
    if len(kept) < len(specs):
        output.args = (tuple(arguments(output)[0][index] for index in kept),)
        specs[:] = [specs[index] for index in kept]
        program.graph_module.recompile()
    return program


def _without_empty_parts(program: ExportedProgram) -> ExportedProgram:
    """What has no elements is no part of what is concatenated."""
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.cat.default:
            parts, *axis = arguments(node)
            kept = [part for part in parts if part.meta["val"].numel()]
            if 0 < len(kept) < len(parts):
                node.args = (kept, *axis)
                program.graph.eliminate_dead_code()
                program.graph_module.recompile()
    return program


def _with_plain_results(program: ExportedProgram) -> ExportedProgram:
    """The program with its results in a plain tuple: Hugging Face's classes are known to their makers only."""
    signature = program.module_call_graph[0].signature
    if signature is not None and not signature.out_spec.is_leaf():
        signature.out_spec = tree_structure((0,) * signature.out_spec.num_leaves)
    return program


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T scale + mask) value (Vaswani et al. 2017, eq. 1)."""
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = torch.matmul(query * (scale or 1 / math.sqrt(query.shape[-1])), key.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        bias = torch.where(attn_mask, 0.0, MASKED) if attn_mask.dtype == torch.bool else attn_mask
        scores = scores + bias
    return torch.matmul(torch.softmax(scores, -1), value)
