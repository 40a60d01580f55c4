"""`main` takes and gives the stored integers of its quantized arguments and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.emit import tensor
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.quantize.quantization import as_quantized, owner_name, quantization_of, storage
from tosaic.support.mlir import functions, ir, shape_of
from tosaic.support.quantization import Quantization


@register
@dataclass(frozen=True)
class QuantizeBoundary(ModulePass):
    """Turn quantized arguments and results of main into integer tensors with scale and zero point attributes."""

    name: ClassVar[str] = "quantize-boundary"

    def run(self, module: ir.Module) -> None:
        main = functions(module)["main"]
        block = main.regions[0].blocks[0]
        arguments = [_argument(block, argument) for argument in block.arguments]
        results = _results(block)
        kind = ir.FunctionType.get(
            [argument.type for argument in block.arguments],
            [operand.type for operand in block.operations[len(block.operations) - 1].operands],
        )
        main.attributes["function_type"] = ir.TypeAttr.get(kind)
        _annotate(main, "arg_attrs", arguments)
        _annotate(main, "res_attrs", results)


def _argument(block: ir.Block, argument: ir.BlockArgument) -> Quantization | None:
    """Retype an argument that is only used quantized, and in one way."""
    users = [use.owner.operation for use in argument.uses]
    if not users or any(user.name != "quant.qcast" for user in users):
        return None
    kinds = {user.results[0].type for user in users}
    if len(kinds) > 1:
        return None
    quantization = quantization_of(users[0].results[0])
    if quantization.axis is not None:
        return None
    shape = shape_of(argument)
    argument.set_type(tensor(shape, quantization.storage))
    with ir.InsertionPoint.at_block_begin(block), users[0].location:
        view = as_quantized(argument, quantization)
    for user in users:
        user.results[0].replace_all_uses_with(view)
        user.erase()
    return quantization


def _results(block: ir.Block) -> list[Quantization | None]:
    """Return the stored integers of every result that is dequantized last."""
    last = block.operations[len(block.operations) - 1].operation
    found: list[Quantization | None] = []
    for index, operand in enumerate(list(last.operands)):
        quantization = None
        if owner_name(operand) == "quant.dcast":
            source = operand.owner.operation.operands[0]
            quantization = quantization_of(source)
            with ir.InsertionPoint(last), operand.owner.operation.location:
                last.operands[index] = storage(source, quantization)
        found.append(quantization)
    return found


def _annotate(main: ir.Operation, kind: str, quantizations: list[Quantization | None]) -> None:
    present = list(ir.ArrayAttr(main.attributes[kind])) if kind in main.attributes else []
    merged = []
    for index, quantization in enumerate(quantizations):
        attributes = {}
        if present:
            attributes = {named.name: named.attr for named in ir.DictAttr(present[index])}
        if quantization is not None:
            i64 = ir.IntegerType.get_signless(64)
            attributes["tosaic.scale"] = ir.FloatAttr.get(ir.F64Type.get(), quantization.scale)
            attributes["tosaic.zero_point"] = ir.IntegerAttr.get(i64, quantization.zero_point)
        merged.append(ir.DictAttr.get(attributes))
    main.attributes[kind] = ir.ArrayAttr.get(merged)
