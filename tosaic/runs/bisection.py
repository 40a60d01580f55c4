"""Where an NPU region begins to differ from its meaning: the first op behind which the region, cut and compiled again,
gives another result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.backends.npu import NpuOptions, NpuRefusal
from tosaic.backends.npus import compile_region, emulate
from tosaic.backends.reference import evaluate, serialize
from tosaic.passes import first_difference
from tosaic.support.errors import Error
from tosaic.support.functions import body_of, computing_ops, main_of, returned
from tosaic.support.mlir import ir
from tosaic.support.values import users


def first_wrong_op(
    function: ir.Operation, inputs: Sequence[np.ndarray], accelerator: str, options: NpuOptions
) -> tuple[ir.Operation, str] | None:
    """The first op of an NPU function at fault on `inputs`, and how what is known behind it differs from the
    reference's; None where neither a part nor the whole differs.

    Bisects: an op is at fault where the ops up to it differ and those before it do not. Ops behind which Vela compiles
    no region are passed over: the next op answers for them.
    """
    ops = computing_ops(function)
    last, difference = len(ops), _difference(function, ops, inputs, accelerator, options)
    if not difference:
        return None
    cuts = list(range(1, last))
    while cuts:
        cut = cuts[len(cuts) // 2]
        found = _difference(function, ops[:cut], inputs, accelerator, options)
        if found is None:
            cuts.remove(cut)
        elif found:
            last, difference = cut, found
            cuts = [one for one in cuts if one < cut]
        else:
            cuts = [one for one in cuts if one > cut]
    return ops[last - 1], difference


def _difference(
    function: ir.Operation,
    ops: Sequence[ir.Operation],
    inputs: Sequence[np.ndarray],
    accelerator: str,
    options: NpuOptions,
) -> str | None:
    """How the leading `ops` of a function differ from their meaning; empty where they do not, None where Vela compiles
    none of it."""
    inside, results = set(ops), set(returned(function))
    known = [value for op in ops for value in op.results]
    leaving = [value for value in known if value in results or not inside.issuperset(users(value))]
    taken = [value for value in body_of(function).arguments if any(user in inside for user in users(value))]
    arguments = [inputs[value.arg_number] for value in taken]
    flatbuffer = serialize(main_of(ops, taken, leaving))
    try:
        got = emulate(compile_region(flatbuffer, accelerator, options), arguments)
        return first_difference(evaluate(flatbuffer, arguments), got)
    except NpuRefusal:
        return None
    except Error as error:
        return str(error)
