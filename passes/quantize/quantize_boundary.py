"""`main` takes and gives the stored integers of its quantized arguments and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.quantize.quantization import as_quantized, quantization_of, storage
from tosaic.support.functions import body_of, bytes_of, number_of_states, retype
from tosaic.support.mlir import functions, ir, shape_of
from tosaic.support.quantization import Quantization, annotate
from tosaic.support.tosa_builder import rescale, tensor
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class QuantizeBoundary(ModulePass):
    """Iteration quantized arguments and results of main into integer tensors with scale and zero point attributes."""

    name: ClassVar[str] = "quantize-boundary"

    def run(self, module: ir.Module) -> None:
        main = functions(module)["main"]
        block = body_of(main)
        end = block.operations[len(block.operations) - 1].operation
        arguments, results = list(map(_taken, block.arguments)), list(map(_given, end.operands))
        for number in range(-number_of_states(main), 0):
            if not users(block.arguments[number]):  # a method writes it whole before another one reads it
                arguments[number] = results[number]
            if arguments[number] != results[number]:  # what is kept between calls has one format
                arguments[number] = results[number] = None
        for number, (argument, kind) in enumerate(zip(list(block.arguments), arguments, strict=True)):
            if kind is not None:
                arguments[number] = _retype(block, argument, kind, number in bytes_of(main))
        for index, kind in enumerate(results):
            if kind is not None:
                _store(end, index, kind)
        retype(main)
        annotate(main, "arg_attrs", arguments)
        annotate(main, "res_attrs", results)


def _taken(argument: ir.Value) -> Quantization | None:
    """How an argument is quantized that is only used so, and in one way."""
    readers = users(argument)
    if not readers or any(reader.name != "quant.qcast" for reader in readers):
        return None
    if len({reader.results[0].type for reader in readers}) > 1:
        return None
    quantization = quantization_of(readers[0].results[0])
    return None if quantization.axis is not None else quantization


def _given(result: ir.Value) -> Quantization | None:
    """How a result is quantized that is dequantized last."""
    cast = producer(result, "quant.dcast")
    return None if cast is None else quantization_of(cast.operands[0])


def _retype(block: ir.Block, argument: ir.BlockArgument, kind: Quantization, is_bytes: bool) -> Quantization:
    """Let an argument be the integers that its readers take, or bytes that become these; returns what it is."""
    readers, shape = users(argument), shape_of(argument)
    argument.set_type(tensor(shape, kind.storage))
    if not readers:
        return kind
    with ir.InsertionPoint.at_block_begin(block), readers[0].location:
        stored = argument
        if is_bytes:
            stored = rescale(argument, kind.storage, [1 << 30], [30], 0, kind.zero_point, input_unsigned=True)
        view = as_quantized(stored, kind)
    for reader in readers:
        reader.results[0].replace_all_uses_with(view)
        reader.erase()
    return Quantization.per_tensor("ui8", kind.scale, 0) if is_bytes else kind


def _store(end: ir.Operation, index: int, quantization: Quantization) -> None:
    """Return the stored integers."""
    cast = end.operands[index].owner
    with ir.InsertionPoint(end), cast.location:
        end.operands[index] = storage(cast.operands[0], quantization)
