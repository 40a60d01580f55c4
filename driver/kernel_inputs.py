"""What CPU kernels really read. On random data some ops have no defined result: a shift by 40, a sum that wraps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.reference import evaluate
from tosaic.passes import random_inputs
from tosaic.support.mlir import bytecode, element_type, functions, ir, parse, walk

_NARROW = ("i1", "i8", "f16", "f32")


def wide_kernel_inputs(placed: ir.Module, seed: int) -> dict[str, tuple[np.ndarray, ...]]:
    """The arguments of each CPU function that takes integers wider than 8 bits, by name.

    They are what the reference model computes on the way from random inputs of the whole model.
    """
    copy = parse(bytecode(placed))
    known = functions(copy)
    calls = {}
    for op in walk(known["main"]):
        if op.name == "func.call":
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            if _is_cpu(known[name]) and any(str(element_type(v)) not in _NARROW for v in op.operands):
                calls[name] = list(op.operands)
    if not calls:
        return {}
    _return_instead(known["main"], [value for operands in calls.values() for value in operands])
    values = iter(evaluate(copy, random_inputs(copy, seed)))
    return {name: tuple(next(values) for _ in operands) for name, operands in calls.items()}


def _is_cpu(function: ir.Operation) -> bool:
    return ir.StringAttr(function.attributes["tosaic.processor"]).value == "cpu"


def _return_instead(main: ir.Operation, values: list[ir.Value]) -> None:
    """Make `main` return `values`; an argument or a repeated value goes through an identity, as TOSA demands."""
    block = main.regions[0].blocks[0]
    old = block.operations[len(block.operations) - 1]
    with main.context, old.location, ir.InsertionPoint(old):
        copies = [ir.Operation.create("tosa.identity", [v.type], [v]).result for v in values]
        ir.Operation.create("func.return", operands=copies)
    old.operation.erase()
    kind = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in values], context=main.context)
    main.attributes["function_type"] = ir.TypeAttr.get(kind, context=main.context)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]


def as_bytes(inputs: Mapping[str, tuple[np.ndarray, ...]]) -> dict[str, tuple[bytes, ...]]:
    """The arrays as a task carries them."""
    return {name: tuple(array.tobytes() for array in arrays) for name, arrays in inputs.items()}
