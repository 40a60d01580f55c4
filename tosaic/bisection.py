"""Where an NPU region begins to differ from its meaning: the first op behind which the region, cut and compiled again,
gives another result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.reference import evaluate, serialize
from tosaic.passes import first_difference
from tosaic.support.errors import Error
from tosaic.support.functions import body_of, computing_ops, main_of
from tosaic.support.mlir import ir
from tosaic.support.values import producer


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


def _cut_behind(function: ir.Operation, last: ir.Operation) -> tuple[ir.Module, list[int]]:
    """A module whose `main` returns the results of `last`, and the numbers of the arguments that it still takes."""
    needed = _needed_for(last)
    ops = [op for op in computing_ops(function) if any(result in needed for result in op.results)]
    arguments = [value for value in body_of(function).arguments if value in needed]
    return main_of(ops, arguments, list(last.results)), [value.arg_number for value in arguments]


def _needed_for(last: ir.Operation) -> set[ir.Value]:
    """The results of `last` and every value that they depend on."""
    needed: set[ir.Value] = set(last.results)
    pending = list(last.operands)
    while pending:
        value = pending.pop()
        if value in needed:
            continue
        needed.add(value)
        if (maker := producer(value)) is not None:
            pending.extend(maker.operands)
    return needed
