"""Functions of one block: what is in one, and one made of copied ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tosaic.support.attributes import int_of, ints_of, text_of
from tosaic.support.loops import captured
from tosaic.support.mlir import functions, ir, walk
from tosaic.support.tosa_ops import BOUNDED, CONSTANT, is_constant
from tosaic.support.values import producer


def body_of(function: ir.Operation) -> ir.Block:
    """The function's block."""
    return function.regions[0].blocks[0]


def computing_ops(function: ir.Operation) -> list[ir.Operation]:
    """The ops in program order, without constants and the return."""
    *ops, _ = [op.operation for op in body_of(function).operations]
    return [op for op in ops if not is_constant(op)]


def is_exact(root: ir.Module | ir.Operation) -> bool:
    """Whether TOSA defines every result below `root` to the bit, so that right can be told from wrong."""
    return not any(op.name in BOUNDED and "f32" in str(op.results[0].type) for op in walk(root))


def returned(function: ir.Operation) -> list[ir.Value]:
    """What the function returns."""
    *_, end = body_of(function).operations
    return list(end.operands)


def callee_of(call: ir.Operation) -> str:
    """The name of the function that a `func.call` calls."""
    return text_of(call, "callee")


def functions_on(processor: str, placed: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a placed module that `cpu` or `npu` runs, by name."""
    return {
        name: function
        for name, function in functions(placed).items()
        if name != "main" and text_of(function, "tosaic.processor") == processor
    }


def called(placed: ir.Module) -> list[str]:
    """The functions that the `main` of a placed module calls, in order."""
    main = body_of(functions(placed)["main"])
    return [callee_of(op.operation) for op in main.operations if op.operation.name == "func.call"]


_STATES = "tosaic.states"


def note_states(module: ir.Module, states: int) -> None:
    """Say that so many of the last arguments of `main` are, at its next call, the last results of this one."""
    if states:
        with module.context:
            kind = ir.IntegerType.get_signless(64)
            functions(module)["main"].attributes[_STATES] = ir.IntegerAttr.get(kind, states)


_BYTES = "tosaic.bytes"


_DROPPED = "tosaic.dropped"


class Dropped(NamedTuple):
    """Dead channels of convolutions that were left out, their weights, and the multiplications of these."""

    channels: int = 0
    weights: int = 0
    macs: int = 0


def note_dropped(function: ir.Operation, more: Dropped) -> None:
    """Add to what was left out of a function."""
    sums = [one + other for one, other in zip(dropped_from(function), more, strict=True)]
    function.attributes[_DROPPED] = ir.DenseI64ArrayAttr.get(sums, context=function.context)


def dropped_from(function: ir.Operation) -> Dropped:
    """All that `note_dropped` noted."""
    return Dropped(*ints_of(function, _DROPPED)) if _DROPPED in function.attributes else Dropped()


def note_bytes(module: ir.Module, numbers: Sequence[int]) -> None:
    """Say that these arguments of `main` are bytes, 0 to 255, once they are integers."""
    if numbers:
        with module.context:
            functions(module)["main"].attributes[_BYTES] = ir.DenseI64ArrayAttr.get(list(numbers))


def bytes_of(main: ir.Operation) -> tuple[int, ...]:
    """As `note_bytes` has noted them."""
    return ints_of(main, _BYTES) if _BYTES in main.attributes else ()


def number_of_states(main: ir.Operation) -> int:
    """As `note_states` has noted it."""
    return int_of(main, _STATES) if _STATES in main.attributes else 0


def retype(function: ir.Operation) -> None:
    """Let the function's type say what its block takes and returns."""
    kind = ir.FunctionType.get([value.type for value in body_of(function).arguments],
                               [value.type for value in returned(function)], context=function.context)  # fmt: skip
    function.attributes["function_type"] = ir.TypeAttr.get(kind, context=function.context)


def return_instead(function: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Let the function return `values` in place of what it returns."""
    *_, end = body_of(function).operations
    with function.context, end.location, ir.InsertionPoint(end):
        ir.Operation.create("func.return", operands=list(values))
    end.operation.erase()
    retype(function)


def strip_annotations(function: ir.Operation) -> None:
    """Drop the attributes `tosaic.*` of the function and its ops, and all of its arguments and results."""
    for op in (function, *walk(function)):
        for name in [name for name in op.attributes if name.startswith("tosaic.")]:
            del op.attributes[name]
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            del function.attributes[name]


def standalone(function: ir.Operation, name: str = "main") -> ir.Module:
    """A new module of a copy of `function` alone: public, called `name`, without annotations."""
    with function.context, function.location:
        module = ir.Module.create()
        copy = function.clone(ir.InsertionPoint(module.body)).operation
        copy.attributes["sym_name"] = ir.StringAttr.get(name)
        if "sym_visibility" in copy.attributes:
            del copy.attributes["sym_visibility"]
        strip_annotations(copy)
    return module


def operands_of(op: ir.Operation) -> list[ir.Value]:
    """What an op reads, those inside of a loop included."""
    return [*op.operands, *captured(op)]


def inputs_of(ops: Sequence[ir.Operation]) -> list[ir.Value]:
    """What `ops` read and neither make nor find constant, in the order of first use."""
    inside = set(ops)
    read = dict.fromkeys(operand for op in ops for operand in operands_of(op))
    return [value for value in read if producer(value) not in inside and producer(value, *CONSTANT) is None]


def extract(
    module: ir.Module,
    name: str,
    ops: Sequence[ir.Operation],
    arguments: Sequence[ir.Value],
    results: Sequence[ir.Value],
    **attributes: ir.Attribute,
) -> ir.Operation:
    """Append a function of copies of `ops` to `module`, in the current context.

    Args:
        ops: in program order. The constants that they read are copied with them.
        arguments: what it takes, at least `inputs_of(ops)`.
        results: what it returns, among the results of `ops`.
        attributes: of the function, besides its name and type.
    """
    location = ops[-1].location
    kind = ir.FunctionType.get([value.type for value in arguments], [value.type for value in results])
    own = {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(kind)}
    function = ir.Operation.create(
        "func.func", attributes=own | attributes, regions=1, loc=location, ip=ir.InsertionPoint(module.body)
    )
    block = function.regions[0].blocks.append(*kind.inputs, arg_locs=[location] * len(arguments))
    copies: dict[ir.Value, ir.Value] = dict(zip(arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for op in ops:
            for operand in operands_of(op):
                if operand not in copies:
                    copies[operand] = operand.owner.operation.clone().results[0]
            copy = op.clone().operation
            for one in (copy, *walk(copy)) if op.regions else (copy,):
                for index, operand in enumerate(list(one.operands)):
                    one.operands[index] = copies.get(operand, operand)
            copies.update(zip(op.results, copy.results, strict=True))
        ir.Operation.create("func.return", operands=[copies[value] for value in results], loc=location)
    return function


def main_of(ops: Sequence[ir.Operation], arguments: Sequence[ir.Value], results: Sequence[ir.Value]) -> ir.Module:
    """A new module whose `main` is `extract`ed."""
    with ops[-1].context, ops[-1].location:
        module = ir.Module.create()
        extract(module, "main", ops, arguments, results)
    return module
