"""`main` takes and gives the stored integers of its quantized arguments and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.quantize.quantization import as_quantized, quantization_of, storage
from tosaic.support.functions import body_of, retype
from tosaic.support.mlir import functions, ir, shape_of
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import tensor
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class QuantizeBoundary(ModulePass):
    """Turn quantized arguments and results of main into integer tensors with scale and zero point attributes."""

    name: ClassVar[str] = "quantize-boundary"

    def run(self, module: ir.Module) -> None:
        main = functions(module)["main"]
        block = body_of(main)
        arguments = [_argument(block, argument) for argument in block.arguments]
        results = _results(block)
        retype(main)
        _annotate(main, "arg_attrs", arguments)
        _annotate(main, "res_attrs", results)


def _argument(block: ir.Block, argument: ir.BlockArgument) -> Quantization | None:
    """Retype an argument that is only used quantized, and in one way."""
    readers = users(argument)
    if not readers or any(reader.name != "quant.qcast" for reader in readers):
        return None
    kinds = {reader.results[0].type for reader in readers}
    if len(kinds) > 1:
        return None
    quantization = quantization_of(readers[0].results[0])
    if quantization.axis is not None:
        return None
    shape = shape_of(argument)
    argument.set_type(tensor(shape, quantization.storage))
    with ir.InsertionPoint.at_block_begin(block), readers[0].location:
        view = as_quantized(argument, quantization)
    for reader in readers:
        reader.results[0].replace_all_uses_with(view)
        reader.erase()
    return quantization


def _results(block: ir.Block) -> list[Quantization | None]:
    """Return the stored integers of every result that is dequantized last."""
    last = block.operations[len(block.operations) - 1].operation
    found: list[Quantization | None] = []
    for index, operand in enumerate(list(last.operands)):
        quantization = None
        if (cast := producer(operand, "quant.dcast")) is not None:
            quantization = quantization_of(cast.operands[0])
            with ir.InsertionPoint(last), cast.location:
                last.operands[index] = storage(cast.operands[0], quantization)
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
