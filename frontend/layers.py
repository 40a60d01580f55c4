"""The layers of a quantized program: each tensor that is rounded to a format, and the op that makes it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.utils._pytree import tree_map

from tosaic.frontend.canonical import DEQUANTIZE, QUANTIZE, arguments, computed
from tosaic.frontend.exclusion import names_of
from tosaic.frontend.lowerings.op_quantization import Clamp, Recurrent, Shared, Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.origin import Origin, origin
from tosaic.support.quantization import TO_SIGNED, signed

_SQNR = "tosaic_sqnr_db"


@dataclass(frozen=True)
class Layer:
    """A quantize node of a program.

    Args:
        sqnr_db: what quantization leaves of the float model here, in dB; None where there is none, or no noise.
        outputs: the numbers of the program's outputs that depend on it.
    """

    node: Node
    sqnr_db: float | None
    outputs: tuple[int, ...]

    @property
    def origin(self) -> Origin:
        """The op whose result it rounds; of an input, its name is the op."""
        source = arguments(self.node)[0]
        return origin(arguments(source)[0] if source.target is operator.getitem else source)

    @property
    def names(self) -> tuple[str, ...]:
        """What a user calls the ops that compute it from the layers before: each by its module and itself."""
        waiting, found = [arguments(self.node)[0]], dict[str, None]()
        while waiting:
            node = waiting.pop()
            if node.op == "call_function" and node.target not in DEQUANTIZE:
                waiting += node.all_input_nodes
                if node.target is not operator.getitem and not isinstance(op_quantization(node), Shared):
                    found[names_of(node)[-1]] = None
        return tuple(found)

    @property
    def is_weighted_int8(self) -> bool:
        """Whether it is int8 of products with weights, or of a clamp of these: PyTorch rounds them as TOSA does."""
        source = arguments(self.node)[0]
        if isinstance(op_quantization(source), Clamp):
            source = arguments(source)[0]
        return isinstance(op_quantization(source), Weighted) and arguments(self.node)[5] == torch.int8

    @property
    def of_steps(self) -> tuple[Node, int] | None:
        """The recurrent layer of which it is this result: the state after each step, or what the last one remembers."""
        source = arguments(self.node)[0]
        if source.target is not operator.getitem or not isinstance(op_quantization(arguments(source)[0]), Recurrent):
            return None
        return arguments(source)[0], arguments(source)[1]

    @property
    def zero_point(self) -> int:
        """The integer that stands for 0; uint8 is compiled as int8."""
        zero_point, _, _, dtype = arguments(self.node)[2:6]
        return zero_point - TO_SIGNED if dtype == torch.uint8 else zero_point


def layers(program: ExportedProgram) -> list[Layer]:
    """The layers of what depends on an input, in program order."""
    nodes = [node for node in computed(program) if node.target is QUANTIZE[0]]
    reached = [_behind(output) for output in arguments(program.graph.output_node())[0]]
    return [
        Layer(node, node.meta.get(_SQNR), tuple(index for index, seen in enumerate(reached) if node in seen))
        for node in nodes
    ]


def note_sqnr(program: ExportedProgram, measured: Mapping[str, tuple[Origin, float]]) -> None:
    """Keep with each layer its ratio against the float model, by the name and the origin of the node that it rounds."""
    for layer in layers(program):
        source = arguments(layer.node)[0]
        known = measured.get(source.name)
        if known and known[0] == origin(source):
            layer.node.meta[_SQNR] = known[1]


def run_layers(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """The integers of each layer in PyTorch's simulation of one sample, as they are compiled.

    It computes in float64: in float32 a sum of which nothing is left would be its own roundings.
    """
    run = _Recorder(program)
    with torch.no_grad():
        run.run(*inputs)
    return [signed(run.seen[layer.node.name].numpy()) for layer in layers(program)]


def _behind(output: Any) -> set[Node]:
    """What an output is computed from."""
    waiting, seen = [output] if isinstance(output, Node) else [], set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return seen


class _Recorder(Interpreter):
    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program.module())
        self.wanted = {layer.node.name for layer in layers(program)}
        self.seen: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.name in self.wanted:
            self.seen[n.name] = result
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in QUANTIZE:
            return super().call_function(target, _cast(args, torch.float64, torch.float32), kwargs)
        if target in DEQUANTIZE:
            return super().call_function(target, args, {**kwargs, "out_dtype": torch.float64})
        return super().call_function(target, *_cast((args, kwargs), torch.float32, torch.float64))


def _cast(tree: Any, one: torch.dtype, other: torch.dtype) -> Any:
    """The same with the tensors and names of dtype `one` as `other`."""

    def cast(leaf: Any) -> Any:
        if leaf is one:
            return other
        return leaf.to(other) if isinstance(leaf, torch.Tensor) and leaf.dtype == one else leaf

    return tree_map(cast, tree)
