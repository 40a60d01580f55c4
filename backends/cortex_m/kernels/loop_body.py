"""The body of a loop that counts, divided into kernels like any function."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.support.errors import PassError
from tosaic.support.functions import computing_ops, inputs_of, main_of, returned
from tosaic.support.graph import Node, graph_of
from tosaic.support.kernels import cpu_kernels
from tosaic.support.loops import LOOP, iteration_of, iterations_of
from tosaic.support.mlir import constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.tosa_ops import is_constant
from tosaic.support.values import byte_size, producer, users


@dataclass(frozen=True)
class LoopPart:
    """A kernel of the iteration: what it reads and what others read of it."""

    meaning: ir.Module
    inputs: Sequence[ir.Value]
    outputs: Sequence[ir.Value]


@dataclass(frozen=True)
class LoopBody:
    """A loop, the only op of a function.

    Args:
        gathers, scatters: of the rows of the iteration's number.
    """

    function: ir.Operation
    loop: ir.Operation
    count: int
    gathers: Sequence[ir.Operation]
    scatters: Sequence[ir.Operation]

    @staticmethod
    def of(function: ir.Operation) -> LoopBody | None:
        """None where a function is something else, or its iterations do more than read and write their rows."""
        ops = computing_ops(function)
        if [op.name for op in ops] != [LOOP] or any(value.owner.name != LOOP for value in returned(function)):
            return None
        (loop,) = ops
        try:
            count = iterations_of(loop)
        except PassError:
            return None
        index = iteration_of(loop).arguments[0]
        ops = [op.operation for op in iteration_of(loop).operations]
        gathers, scatters = ([op for op in ops if op.name == name] for name in ("tosa.gather", "tosa.scatter"))
        if any(op.operands[1] != index or shape_of(op.operands[0])[0] != 1 for op in (*gathers, *scatters)):
            return None
        iteration = LoopBody(function, loop, count, gathers, scatters)
        return iteration if iteration._is_plain() else None

    def _is_plain(self) -> bool:
        """Whether the loop carries nothing in a way that needs a copy.

        Then gathers read what no iteration writes, and scatters write what only they read. All else that is carried
        stays the same, or is a kernel's whole result.
        """
        arguments = list(iteration_of(self.loop).arguments)
        made = {value for part in self.parts() for value in part.outputs}
        written = [op.operands[0] for op in self.scatters]
        return (
            all(root_of(op.operands[0])[0] not in arguments for op in self.gathers)
            and all(value in arguments and len(users(value)) == 1 for value in written)
            and all(self.given(op.operands[0]) == op.results[0] for op in self.scatters)
            and all(root_of(op.operands[2])[0] in made for op in self.scatters)
            and all(self.given(one) == one or self._is_whole(self.given(one), made) for one in self.carried)
        )

    @staticmethod
    def _is_whole(value: ir.Value, made: Collection[ir.Value]) -> bool:
        root, _ = root_of(value)
        return root in made and byte_size(root) == byte_size(value)

    def readers(self, value: ir.Value) -> list[ir.Value]:
        """What is carried to the next iteration and begins with `value`."""
        return [one for one in self.carried if root_of(self.given(one))[0] == value]

    @property
    def carried(self) -> Sequence[ir.Value]:
        """What an iteration gets, but for its number and the rows that it writes."""
        written = [op.operands[0] for op in self.scatters]
        return [value for value in list(iteration_of(self.loop).arguments)[1:] if value not in written]

    def given(self, value: ir.Value) -> ir.Value:
        """What the next iteration gets for a carried value."""
        *_, end = iteration_of(self.loop).operations
        return end.operands[ir.BlockArgument(value).arg_number]

    def first(self, value: ir.Value) -> ir.Value:
        """What the first iteration gets for it."""
        return self.loop.operands[ir.BlockArgument(value).arg_number]

    def output(self, value: ir.Value) -> int | None:
        """The number of the function's result that is what the last iteration gives for it."""
        result = self.loop.results[ir.BlockArgument(value).arg_number]
        return next((number for number, one in enumerate(returned(self.function)) if one == result), None)

    def parts(self) -> list[LoopPart]:
        """The kernels of an iteration, each behind those that it reads."""
        *ops, end = (op.operation for op in iteration_of(self.loop).operations)
        nodes = graph_of([op for op in ops if not is_constant(op)], list(end.operands)[1:])
        counter = producer(end.operands[0])
        passed = {*self.gathers, *self.scatters, counter}
        groups = [
            group for group in cpu_kernels(nodes) if not any(node.op in passed or is_view(node.op) for node in group)
        ]
        return [_part(group) for group in _sorted(groups)]


def _part(group: Sequence[Node]) -> LoopPart:
    ops = [node.op for node in group]
    inside = set(ops)
    outputs = [value for op in ops for value in op.results if any(user not in inside for user in users(value))]
    inputs = inputs_of(ops)
    return LoopPart(main_of(ops, inputs, outputs), inputs, outputs)


def _sorted(groups: Sequence[Sequence[Node]]) -> list[Sequence[Node]]:
    """Each group behind those that it reads, through views too."""
    group_of = {node.op: number for number, group in enumerate(groups) for node in group}
    found: dict[int, None] = {}

    def visit(place: int) -> None:
        for value in inputs_of([node.op for node in groups[place]]):
            maker = group_of.get(producer(root_of(value)[0]))
            if maker is not None and maker not in found:
                visit(maker)
        found[place] = None

    for place in range(len(groups)):
        if place not in found:
            visit(place)
    return [groups[place] for place in found]


def root_of(value: ir.Value) -> tuple[ir.Value, int]:
    """The tensor that a value is a piece of, and where it begins there in bytes."""
    offset = 0
    while (op := producer(value)) is not None and is_view(op):
        offset += _begin(op) or 0
        value = op.operands[0]
    return value, offset


def is_view(op: ir.Operation) -> bool:
    return op.name == "tosa.reshape" or (op.name == "tosa.slice" and _begin(op) is not None)


def _begin(op: ir.Operation) -> int | None:
    """Where the result of a reshape or slice lies in its operand, in bytes; None where it is no aligned piece of it."""
    if op.name == "tosa.reshape":
        return 0
    start, size = constant_value(op.operands[1]), shape_of(op.results[0])
    whole = shape_of(op.operands[0])
    outer = next((axis for axis, extent in enumerate(size) if extent > 1), len(size))
    if start is None or size[outer + 1 :] != whole[outer + 1 :]:
        return None
    strides = [math.prod(whole[axis + 1 :]) for axis in range(len(whole))]
    begin = sum(int(at) * stride for at, stride in zip(start, strides, strict=True))
    begin *= numpy_dtype(element_type(op.results[0])).itemsize
    return None if begin % VECTOR else begin
