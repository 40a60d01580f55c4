"""The methods of a model: what can be called of it, each with its own inputs and results, all with the same states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from tosaic.support.attributes import int_of, ints_of, text_of
from tosaic.support.functions import operands_of
from tosaic.support.mlir import functions, ir
from tosaic.support.names import Name

_NAMES, _INPUTS, _RESULTS = "tosaic.methods", "tosaic.method_inputs", "tosaic.method_results"
_METHOD, _ENTERS, _ENTERED = "tosaic.method", "tosaic.enters", "tosaic.entered"


@dataclass(frozen=True)
class Method:
    """One of several things that a model does.

    Args:
        name: what its function in C is called behind the model's name.
        inputs, results: how many of the model's it has; these stand in the order of the methods.
    """

    name: Name
    inputs: int
    results: int


class Entering(NamedTuple):
    """A value that is what state number `state` holds when method number `method` begins."""

    method: int
    state: int


def starts(counts: Sequence[int]) -> list[int]:
    """Where the share of each begins, where all stand in a row."""
    return [0, *accumulate(counts)][:-1]


def note_methods(module: ir.Module, methods: Sequence[Method]) -> None:
    """Say which methods `main` runs in turn; nothing where it is one."""
    if not methods:
        return
    with module.context:
        main = functions(module)["main"]
        main.attributes[_NAMES] = ir.StringAttr.get(",".join(each.name for each in methods))
        main.attributes[_INPUTS] = ir.DenseI64ArrayAttr.get([each.inputs for each in methods])
        main.attributes[_RESULTS] = ir.DenseI64ArrayAttr.get([each.results for each in methods])


def methods_of(main: ir.Operation) -> tuple[Method, ...]:
    """As `note_methods` has noted them."""
    if _NAMES not in main.attributes:
        return ()
    names = text_of(main, _NAMES).split(",")
    return tuple(map(Method, names, ints_of(main, _INPUTS), ints_of(main, _RESULTS)))


def note_entering(op: ir.Operation, entering: Entering) -> None:
    """Say that the result of an op is what a state holds when a method begins."""
    op.attributes[_ENTERS] = ir.DenseI64ArrayAttr.get(list(entering), context=op.context)


def entering_of(op: ir.Operation) -> Entering | None:
    """As `note_entering` has noted it; None of every other op."""
    return Entering(*ints_of(op, _ENTERS)) if _ENTERS in op.attributes else None


def note_method(function: ir.Operation, method: int) -> None:
    """Say which method calls a function."""
    kind = ir.IntegerType.get_signless(64, function.context)
    function.attributes[_METHOD] = ir.IntegerAttr.get(kind, method)


def method_of(function: ir.Operation) -> int:
    """The number of the method that calls a function."""
    return int_of(function, _METHOD) if _METHOD in function.attributes else 0


def methods_by_op(main: ir.Operation) -> dict[ir.Operation, int]:
    """The number of the method that each op of a `main` cut by methods belongs to; constants belong to none."""
    block, methods = main.regions[0].blocks[0], methods_of(main)
    inputs = [number for number, each in enumerate(methods) for _ in range(each.inputs)]
    entered = [each.method for each, _ in entered_of(main)]
    states = [0] * (len(block.arguments) - len(inputs) - len(entered))
    owners: dict[ir.Value, int] = dict(zip(block.arguments, [*inputs, *states, *entered], strict=True))
    found: dict[ir.Operation, int] = {}
    *ops, _ = [op.operation for op in block.operations]
    for op in ops:
        read = [owners[operand] for operand in operands_of(op) if operand in owners]
        if read:
            found[op] = max(read)
            owners |= dict.fromkeys(op.results, found[op])
    return found


def note_entered(main: ir.Operation, entered: Sequence[tuple[Entering, int]]) -> None:
    """Say of the last arguments of `main` what each is, and which result gives it: -1 where the state is unchanged."""
    numbers = [number for entering, result in entered for number in (*entering, result)]
    main.attributes[_ENTERED] = ir.DenseI64ArrayAttr.get(numbers, context=main.context)


def entered_of(main: ir.Operation) -> list[tuple[Entering, int]]:
    """As `note_entered` has noted it."""
    numbers = ints_of(main, _ENTERED) if _ENTERED in main.attributes else ()
    return [(Entering(*numbers[at : at + 2]), numbers[at + 2]) for at in range(0, len(numbers), 3)]
