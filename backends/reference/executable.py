"""A module in the stages in which the reference model executes it: loops iteration by iteration, what stands between
them whole.

Arm's serializer knows no loops, and of thousands of ops, as unrolled ones are, the model takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.reference.flatbuffer import serialize
from tosaic.support.functions import body_of, computing_ops, inputs_of, main_of, returned
from tosaic.support.loops import LOOP, captured, iteration_of, iterations_of
from tosaic.support.mlir import ODD_WIDTHS, constant_value, element_type, functions, ir, parse
from tosaic.support.tosa_ops import is_constant


@dataclass(frozen=True)
class ReferenceStage:
    """What is executed together.

    Args:
        reads, writes: numbers of tensors.
        iterations: how often; None for once. An iteration reads its number and `reads`, the first of which it carries.
        gives: of a loop, for each tensor that it carries which result of an iteration the next one gets; None for the
        same.
        odd: whether it reads or writes i4 or i48, which the model's Python module gets wrong.
    """

    flatbuffer: bytes
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    iterations: int | None = None
    gives: tuple[int | None, ...] = ()
    odd: bool = False


@dataclass(frozen=True)
class Executable:
    """Stages in order; the first tensors are the arguments.

    Args:
        arguments: how many there are.
        known: constants among the tensors, by number.
        results: the numbers of the results.
    """

    stages: tuple[ReferenceStage, ...]
    arguments: int
    known: Mapping[int, np.ndarray]
    results: tuple[int, ...]

    @property
    def iterations(self) -> int:
        """How often something is executed, which tells how long it takes."""
        return sum(stage.iterations or 1 for stage in self.stages)


def prepare(module: ir.Module | str) -> Executable:
    """The stages of a module's `main`.

    Raises:
        BackendError: tosa-opt refused the module.
        PassError: a loop does not count.
    """
    parsed = parse(module) if isinstance(module, str) else module
    main = functions(parsed)["main"]
    arguments, results = list(body_of(main).arguments), returned(main)
    ops = computing_ops(main)
    if ops and not any(op.name == LOOP for op in ops):
        count = len(arguments)
        written = tuple(range(count, count + len(results)))
        odd = _is_odd([*arguments, *results])
        return Executable(
            (ReferenceStage(serialize(parsed), tuple(range(count)), written, odd=odd),), count, {}, written
        )
    return _Splitter(main).executable()


class _Splitter:
    def __init__(self, main: ir.Operation) -> None:
        self._main, self._known = main, dict[int, np.ndarray]()
        self._numbers = {value: number for number, value in enumerate(body_of(main).arguments)}

    def executable(self) -> Executable:
        stages, between = list[ReferenceStage](), list[ir.Operation]()
        for op in computing_ops(self._main):
            if op.name != LOOP:
                between.append(op)
                continue
            stages += [*self._whole(between), self._loop(op)]
            between = []
        stages += self._whole(between)
        results = tuple(map(self._number, returned(self._main)))
        return Executable(tuple(stages), len(body_of(self._main).arguments), self._known, results)

    def _number(self, value: ir.Value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self._numbers)
            known = constant_value(value)
            if known is not None:
                self._known[self._numbers[value]] = known
        return self._numbers[value]

    def _whole(self, ops: Sequence[ir.Operation]) -> Iterable[ReferenceStage]:
        inside = set(ops)
        left = [
            result
            for op in ops
            for result in op.results
            if any(_outermost(use.owner.operation, self._main) not in inside for use in result.uses)
        ]
        if left:
            inputs = inputs_of(ops)
            flatbuffer = serialize(main_of(ops, inputs, left))
            reads, writes = (tuple(map(self._number, values)) for values in (inputs, left))
            yield ReferenceStage(flatbuffer, reads, writes, odd=_is_odd([*inputs, *left]))

    def _loop(self, loop: ir.Operation) -> ReferenceStage:
        block = iteration_of(loop)
        ops = [op.operation for op in block.operations if not is_constant(op)]
        *ops, end = ops
        number, *carried = block.arguments
        outside = [value for value in captured(loop) if constant_value(value) is None]
        given = list(end.operands)[1:]
        computed = list(dict.fromkeys(value for value, one in zip(given, carried, strict=True) if value != one))
        flatbuffer = serialize(main_of(ops, [number, *carried, *outside], computed))
        return ReferenceStage(
            flatbuffer,
            tuple(map(self._number, [*list(loop.operands)[1:], *outside])),
            tuple(map(self._number, list(loop.results)[1:])),
            iterations_of(loop),
            tuple(None if value == one else computed.index(value) for value, one in zip(given, carried, strict=True)),
            _is_odd([*carried, *outside]),
        )


def _is_odd(values: Iterable[ir.Value]) -> bool:
    return any(str(element_type(value)) in ODD_WIDTHS for value in values)


def _outermost(op: ir.Operation, main: ir.Operation) -> ir.Operation:
    """The op of the function's own block that `op` is, or stands in."""
    while op.parent is not None and op.parent.operation != main:
        op = op.parent.operation
    return op
