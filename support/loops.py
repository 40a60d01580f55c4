"""Loops of TOSA that count: a WHILE_LOOP whose first value is the number of the iteration, from 0 on.

They read what stands before them as well as what they carry from iteration to iteration. Arm's serializer knows no
control flow: what leaves tosaic as a flatbuffer is `unrolled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tosaic.support.errors import PassError
from tosaic.support.locations import describe
from tosaic.support.mlir import (
    constant,
    constant_shape,
    constant_value,
    element_type,
    ir,
    numpy_dtype,
    shape_of,
    walk,
)
from tosaic.support.tosa_builder import element, emit, reshape
from tosaic.support.tosa_ops import is_constant
from tosaic.support.values import producer

LOOP = "tosa.while_loop"


def counted_loop(
    iterations: int, carried: Sequence[ir.Value], body: Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]]
) -> list[ir.Value]:
    """Emit a loop at the current insertion point and location.

    Args:
        carried: what the first iteration gets.
        body: emits an iteration, given its number as an i32 tensor [1, 1] and what the iteration before it gave;
        returns what the
            next one gets, of the same types.

    Returns:
        What the last iteration gives.
    """
    values = [_iteration_number(0), *carried]
    kinds = [value.type for value in values]
    location = ir.Location.current
    loop = ir.Operation.create(LOOP, results=kinds, operands=values, regions=2)
    condition, iteration = (region.blocks.append(*kinds, arg_locs=[location] * len(kinds)) for region in loop.regions)
    with ir.InsertionPoint(condition):
        more = emit("greater", [_iteration_number(iterations), condition.arguments[0]], (1, 1), "i1")
        ir.Operation.create("tosa.yield", operands=[emit("reshape", [more, constant_shape([])], (), "i1")])
    with ir.InsertionPoint(iteration):
        index, *given = iteration.arguments
        results = body(index, given)
        following = emit("add", [index, _iteration_number(1)], (1, 1), "i32")
        ir.Operation.create("tosa.yield", operands=[following, *results])
    return list(loop.results)[1:]


Step: TypeAlias = "Callable[[ir.Value, Sequence[ir.Value]], tuple[ir.Value, Sequence[ir.Value]]]"


def over_rows(
    x: ir.Value, outer: int, kind: ir.Type | str, carried: Sequence[ir.Value], step: Step
) -> tuple[ir.Value, Sequence[ir.Value]]:
    """A loop over the rows of x, [N, T, I]; without one where there is a single row.

    Args:
        outer, kind: the size and the element type of a result's row.
        step: emits an iteration, given its row as [N, 1, 1, I] and what is carried; returns its result, [N, 1, 1,
        outer], and
            what the next iteration gets.

    Returns:
        The results as [N, T, outer], and what the last iteration gives.
    """
    n, iterations, inner = shape_of(x)
    if iterations == 1:
        result, last = step(reshape(x, (n, 1, 1, inner)), carried)
        return reshape(result, (n, 1, outer)), last

    def iteration(number: ir.Value, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
        at = number if n == 1 else emit("tile", [number, constant_shape((n, 1))], (n, 1), "i32")
        row = emit("gather", [x, at], (n, 1, inner), element_type(x))
        result, following = step(reshape(row, (n, 1, 1, inner)), values[1:])
        return [
            emit("scatter", [values[0], at, reshape(result, (n, 1, outer))], (n, iterations, outer), kind),
            *following,
        ]

    none = constant(np.zeros((n, iterations, outer), numpy_dtype(element(kind))))
    rows, *last = counted_loop(iterations, [none, *carried], iteration)
    return rows, last


def iterations_of(loop: ir.Operation) -> int:
    """How often a loop iterates.

    Raises:
        PassError: it is not one that `counted_loop` makes.
    """
    condition, iteration = (region.blocks[0] for region in loop.regions)
    first = constant_value(loop.operands[0])
    last = _limit(condition)
    if first is None or first.any() or last is None or not _counts(iteration):
        raise PassError(
            "a loop does not count its iterations from 0 to a constant",
            where=describe(loop.location),
            why="how often it iterates must be known at compile time",
        )
    return last


def iteration_of(loop: ir.Operation) -> ir.Block:
    """The block of one iteration: its first argument is the iteration's number, the others what the loop carries."""
    return loop.regions[1].blocks[0]


def captured(op: ir.Operation) -> list[ir.Value]:
    """What the ops inside of `op` read and find outside of it, in the order of first use."""
    if not op.regions:
        return []
    inside = {op, *walk(op)}
    found: dict[ir.Value, None] = {}
    for inner in walk(op):
        for operand in inner.operands:
            owner = operand.owner
            maker = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
            if maker not in inside:
                found[operand] = None
    return list(found)


def unroll(root: ir.Module | ir.Operation) -> None:
    """Write every loop below `root` iteration by iteration, in place.

    Raises:
        PassError: as `iterations_of`.
    """
    for loop in walk(root):
        if loop.name == LOOP:
            _unroll(loop)


def _unroll(loop: ir.Operation) -> None:
    *ops, end = (op.operation for op in iteration_of(loop).operations)
    values = list(loop.operands)
    with loop.context, loop.location, ir.InsertionPoint(loop):
        for op in [op for op in ops if is_constant(op)]:
            op.move_before(loop)
            ops.remove(op)
        for number in range(iterations_of(loop)):
            values[0] = _iteration_number(number)
            copies = dict(zip(iteration_of(loop).arguments, values, strict=True))
            for op in ops:
                copy = op.clone().operation
                for index, operand in enumerate(list(op.operands)):
                    if operand in copies:
                        copy.operands[index] = copies[operand]
                copies.update(zip(op.results, copy.results, strict=True))
            values = [copies.get(value, value) for value in end.operands]
        for old, new in zip(loop.results, values, strict=True):
            old.replace_all_uses_with(new)
    loop.erase()


def _iteration_number(number: int) -> ir.Value:
    return constant(np.full((1, 1), number, np.int32))


def _limit(condition: ir.Block) -> int | None:
    *_, end = condition.operations
    flag = producer(end.operands[0], "tosa.reshape")
    greater = producer(flag.operands[0], "tosa.greater") if flag is not None else None
    if greater is None or greater.operands[1] != condition.arguments[0]:
        return None
    last = constant_value(greater.operands[0])
    return None if last is None or last.size != 1 else int(last.item())


def _counts(iteration: ir.Block) -> bool:
    *_, end = iteration.operations
    add = producer(end.operands[0], "tosa.add")
    if add is None or add.operands[0] != iteration.arguments[0]:
        return False
    step = constant_value(add.operands[1])
    return step is not None and step.size == 1 and step.item() == 1
