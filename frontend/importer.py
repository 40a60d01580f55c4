"""An exported program becomes an MLIR module: TOSA on f32 with quant casts, every op with its source location."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from tosaic.frontend.builder import Builder, Operand, compiled_dtype
from tosaic.frontend.canonical import DEQUANTIZE, QUANTIZE, TRANSPOSES, arguments, complete_arguments
from tosaic.frontend.constant import Constant
from tosaic.frontend.decomposition import importable
from tosaic.frontend.exclusion import stays_float
from tosaic.frontend.lowerings.op_quantization import Shared
from tosaic.frontend.lowerings.registry import op_quantization, registered
from tosaic.frontend.origin import failure, origin
from tosaic.support import mlir
from tosaic.support.errors import ModelError
from tosaic.support.mlir import ir
from tosaic.support.quantization import TO_SIGNED, Quantization, signed
from tosaic.support.tosa_ops import MOST_AXES

_PADS = (torch.ops.aten.pad.default, torch.ops.aten.constant_pad_nd.default)


def import_program(program: ExportedProgram, exclude: Sequence[str] = (), returning: Sequence[Node] = ()) -> ir.Module:
    """Import a program, quantized or not, into a new context.

    Args:
        exclude: module paths and op types whose ops carry `tosaic.float`, so that they stay float32.
        returning: nodes of a program that needs no decomposition whose values `main` returns behind its own results.

    Returns:
        A verified module with one public `main`: float32, int32 (from int64) or bool tensors, in the user's layout.

    Raises:
        ModelError: ops without a lowering, all of them, with the user's lines; a dtype or a constant that does not fit.
    """
    program = importable(program)
    with mlir.context(), ir.Location.unknown():
        module = ir.Module.create()
        _Importer(program, Builder(module), exclude).run(returning)
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            where, why = mlir.diagnosis(error)
            raise ModelError("the imported model is not valid TOSA", where=where, why=why) from None
    return module


class _Importer:
    def __init__(self, program: ExportedProgram, builder: Builder, exclude: Sequence[str]) -> None:
        self.program, self.builder, self.exclude = program, builder, exclude
        self.env: dict[Node, Any] = {}
        self.state = {**program.state_dict, **program.constants}

    def run(self, returning: Sequence[Node]) -> None:
        signature = self.program.graph_signature
        weights = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        placeholders = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        inputs = []
        for node in placeholders:
            if node.name in weights:
                self.env[node] = Constant(self.state[weights[node.name]].detach().numpy())
            else:
                inputs.append(node)
        func = mlir.dialect("func")
        types = [self._tensor_type(node) for node in inputs]
        with ir.InsertionPoint(self.builder.module.body):
            main = func.FuncOp("main", (types, []))
        block = main.add_entry_block()
        self.env.update(zip(inputs, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for node in self.program.graph.nodes:
                if node.op == "call_function" and node.users:
                    self._visit(node)
            given = [self.env[node] for node in (*self._outputs(), *returning)]
            results = [self.builder.stored(self.builder.value(operand)) for operand in given]
            func.ReturnOp(results)
        kind = ir.FunctionType.get(types, [result.type for result in results])
        main.operation.attributes["function_type"] = ir.TypeAttr.get(kind)

    def _outputs(self) -> list[Node]:
        output = next(node for node in self.program.graph.nodes if node.op == "output")
        return [node for node in arguments(output)[0] if isinstance(node, Node)]

    def _tensor_type(self, node: Node) -> ir.Type:
        tensor = node.meta["val"]
        return ir.RankedTensorType.get(list(tensor.shape), mlir.mlir_type(compiled_dtype(tensor.dtype)))

    def _visit(self, node: Node) -> None:
        self.builder.stays_float = stays_float(node, self.exclude)
        with origin(node).location():
            try:
                self._check_elements(node)
                self.env[node] = self._lower(node)
                self._check_axes(node)
            except ModelError as error:
                if error.where:
                    raise
                raise ModelError(error.what, where=str(origin(node)), why=error.why, hint=error.hint) from None
            except Exception as error:
                raise failure(node, error) from error

    def _check_elements(self, node: Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and not value.numel():
            raise ModelError(f"the result of `{node.target}` has no elements", hint="leave it out")

    def _check_axes(self, node: Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.ndim > MOST_AXES and not isinstance(self.env[node], Constant):
            raise ModelError(
                f"the result of `{node.target}` has {value.ndim} axes",
                why=f"TOSA knows tensors of {MOST_AXES} at most",
                hint="merge axes that stay together with a reshape",
            )

    def _lower(self, node: Node) -> Any:
        if node.target is operator.getitem:
            return self._item(*arguments(node))
        if node.target in QUANTIZE:
            return self._quantize(node)
        if node.target in DEQUANTIZE:
            return self._dequantize(node)
        folded = self._fold(node)
        if folded is not None:
            return folded
        lowering = registered()[node.target]
        given = [self._argument(x, raw=i in lowering.raw) for i, x in enumerate(complete_arguments(node))]
        if _is_bytes(node):
            given = _of_bytes(node, given)
        elif node.target != torch.ops.aten.argmax.default:
            given = [self._counted(x, value) for x, value in zip(complete_arguments(node), given, strict=True)]
        return lowering.emit(self.builder, node, *given)

    def _counted(self, argument: Any, value: Any) -> Any:
        """The value of an argument; what is uint8 in the program, and stored 128 less, as the int32 that it counts."""
        if not isinstance(value, ir.Value) or not _is_bytes(argument):
            return value
        return self.builder.pointwise("add", self.builder.cast(value, self.builder.i32), TO_SIGNED)

    def _item(self, source: Node, index: int) -> Operand:
        results = self.env[source]
        if index >= len(results):
            raise ModelError(
                f"result {index} of `{source.target}` cannot be compiled", hint="use its first result only"
            )
        return results[index]

    def _argument(self, argument: Any, raw: bool) -> Any:
        if isinstance(argument, Node):
            operand = self.env[argument]
            if isinstance(operand, ir.Value):
                return self.builder.stored(operand)
            return operand if raw else self.builder.value(operand)
        if isinstance(argument, list | tuple):
            return [self._argument(item, raw) for item in argument]
        return argument

    def _fold(self, node: Node) -> Constant | tuple[Constant, ...] | None:
        """Compute a node whose tensors are all known; a quantized constant can only be moved."""
        operands = [self.env[source] for source in node.all_input_nodes]
        if not all(isinstance(operand, Constant) for operand in operands):
            return None
        if node.target in TRANSPOSES:
            (operand,) = operands
            return operand.transpose(_permutation(node, len(operand.shape)))
        quantizations = [operand.quantization for operand in operands if operand.quantization]
        op = op_quantization(node)
        moves = isinstance(op, Shared) and op.moves
        if quantizations and not (moves and quantizations[0].axis is None):
            return None
        result = self._compute(node)
        if isinstance(result, list | tuple):
            return tuple(Constant(item.contiguous().numpy()) for item in result)
        return Constant(result.contiguous().numpy(), quantizations[0] if quantizations else None)

    def _compute(self, node: Node) -> Any:
        """What PyTorch gives for a node whose tensors are all known."""

        def tensor(source: Node) -> torch.Tensor:
            known = self.env[source]
            if known.quantization and node.target in QUANTIZE:
                return torch.from_numpy(known.quantization.dequantize(known.array).astype(np.float32))
            return torch.from_numpy(np.array(known.array))

        target: Any = node.target
        return target(*torch.fx.map_arg(arguments(node), tensor), **torch.fx.map_arg(node.kwargs, tensor))

    def _quantization(self, node: Node) -> Quantization:
        if node.target in (QUANTIZE[1], DEQUANTIZE[1]):
            _, scales, zero_points, axis, low, high, dtype = arguments(node)[:7]
            scales, zero_points = (self.env[one].array.tolist() for one in (scales, zero_points))
        else:
            _, scales, zero_points, low, high, dtype = arguments(node)[:6]
            scales, zero_points, axis = [scales], [zero_points], None
        if not np.all(np.isfinite(scales)) or min(scales) <= 0:
            raise ModelError("a quantization scale is not a positive number", why=f"it is {min(scales)}")
        shift = TO_SIGNED if dtype == torch.uint8 else 0
        return Quantization(
            str(mlir.mlir_type(compiled_dtype(torch.int8 if shift else dtype))),
            tuple(map(float, scales)),
            tuple(int(zero_point) - shift for zero_point in zero_points),
            axis,
            low - shift,
            high - shift,
        )

    def _quantize(self, node: Node) -> Operand:
        source = self.env[arguments(node)[0]]
        if isinstance(source, Constant):
            return Constant(signed(self._compute(node).numpy()))
        return self.builder.quantize(source, self._quantization(node))

    def _dequantize(self, node: Node) -> Operand:
        source = self.env[arguments(node)[0]]
        if isinstance(source, Constant):
            return Constant(signed(source.array), self._quantization(node))
        return self.builder.dequantize(self.builder.as_quantized(source, self._quantization(node)))


def _is_bytes(node: Node) -> bool:
    values = tree_leaves(node.meta.get("val"))
    return any(isinstance(one, torch.Tensor) and one.dtype == torch.uint8 for one in values)


def _of_bytes(node: Node, given: Sequence[Any]) -> list[Any]:
    """The arguments of an op whose result is uint8, which is stored 128 less; a number that pads is, too.

    Raises:
        ModelError: the op does more than to move, compare and pad.
    """
    if not isinstance(op_quantization(node), Shared):
        compiled_dtype(torch.uint8)
    if node.target not in _PADS:
        return list(given)
    *others, number = given
    return [*others, (number or 0) - TO_SIGNED]


def _permutation(node: Node, rank: int) -> list[int]:
    """The axes of the operand in the order that the result has them."""
    sizes = torch.empty(tuple(range(rank)), device="meta")
    target: Any = node.target
    return list(target(sizes, *arguments(node)[1:]).shape)
