"""Where an NPU region begins to differ from its meaning: the first op behind which the region, cut and compiled again,
gives another result. And the cuts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.reference import evaluate, serialize
from tosaic.passes import first_difference
from tosaic.support.errors import Error
from tosaic.support.mlir import ir, walk

_CONSTANTS = ("tosa.const", "tosa.const_shape")


def first_wrong_op(
    function: ir.Operation, inputs: Sequence[np.ndarray], accelerator: str
) -> tuple[ir.Operation, str] | None:
    """The first op of an NPU function at fault on `inputs`, and how its result differs from the reference's.

    Ops behind which Vela compiles no region are passed over: the next op answers for them. None where no cut differs.
    """
    for op in computing_ops(function):
        module, used = _cut_behind(function, op)
        flatbuffer, arguments = serialize(module), [inputs[index] for index in used]
        try:
            got = emulate(compile_region(flatbuffer, accelerator), arguments).outputs
            difference = first_difference(evaluate(flatbuffer, arguments), got)
        except VelaRefusal:
            continue
        except Error as error:
            difference = str(error)
        if difference:
            return op, difference
    return None


def computing_ops(function: ir.Operation) -> list[ir.Operation]:
    """The ops of a function in order, without constants and the return."""
    return [op for op in walk(function) if op.name not in (*_CONSTANTS, "func.return")]


def single_op(op: ir.Operation) -> ir.Module:
    """A module whose `main` is `op` alone: computed operands are arguments, constants stay."""
    constants = [v for v in op.operands if not isinstance(v.owner, ir.Block) and "const" in v.owner.name]
    arguments = [value for value in op.operands if value not in constants]
    kind = [value.type for value in arguments]
    with op.context, op.location:
        module = ir.Module.create()
        attributes = {
            "sym_name": ir.StringAttr.get("main"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(kind, [result.type for result in op.results])),
        }
        main = ir.Operation.create("func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body))
        body = main.regions[0].blocks.append(*kind, arg_locs=[op.location] * len(kind))
        values = dict(zip(arguments, body.arguments, strict=True))
        with ir.InsertionPoint(body):
            values |= {value: value.owner.operation.clone().results[0] for value in constants}
            copy = op.clone().operation
            for index, operand in enumerate(list(op.operands)):
                copy.operands[index] = values[operand]
            ir.Operation.create("func.return", operands=list(copy.results))
    return module


def _cut_behind(function: ir.Operation, last: ir.Operation) -> tuple[ir.Module, list[int]]:
    """A module whose `main` returns the results of `last`, and the numbers of the arguments that it still takes."""
    needed = _needed_for(last)
    arguments = [value for value in function.regions[0].blocks[0].arguments if value in needed]
    with function.context, last.location:
        module = ir.Module.create()
        kind = ir.FunctionType.get([value.type for value in arguments], [value.type for value in last.results])
        attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": ir.TypeAttr.get(kind)}
        main = ir.Operation.create("func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body))
        body = main.regions[0].blocks.append(*kind.inputs, arg_locs=[last.location] * len(arguments))
        values: dict[ir.Value, ir.Value] = dict(zip(arguments, body.arguments, strict=True))
        with ir.InsertionPoint(body):
            for op in walk(function):
                if not any(result in needed for result in op.results):
                    continue
                copy = op.clone().operation
                for index, operand in enumerate(list(op.operands)):
                    copy.operands[index] = values[operand]
                values.update(zip(op.results, copy.results, strict=True))
            ir.Operation.create("func.return", operands=[values[value] for value in last.results])
    return module, [ir.BlockArgument(value).arg_number for value in arguments]


def _needed_for(last: ir.Operation) -> set[ir.Value]:
    """The results of `last` and every value that they depend on."""
    needed: set[ir.Value] = set(last.results)
    pending = list(last.operands)
    while pending:
        value = pending.pop()
        if value in needed:
            continue
        needed.add(value)
        if not isinstance(value.owner, ir.Block):
            pending.extend(value.owner.operands)
    return needed
