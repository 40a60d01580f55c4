"""What an NPU computes of a loop, which it does not run: what iterations need not wait for, or all of their
iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tosaic.backends.target import Target
from tosaic.compiler.placement import Placement, npu_forms, place_on
from tosaic.compiler.placement_by_cost import LEAST_GAIN, CpuCycles, cycles_of
from tosaic.compiler.verdicts import costs_of
from tosaic.passes.npu.costs import COSTS
from tosaic.passes.npu.rows_at_once import RowsAtOnce
from tosaic.passes.npu.unroll_loops import UnrollLoops
from tosaic.support.functions import computing_ops, inputs_of, main_of
from tosaic.support.loops import LOOP, iteration_of, iterations_of
from tosaic.support.mlir import bytecode, copy_of, functions, ir
from tosaic.support.tosa_ops import MOST_JOINED, is_constant
from tosaic.support.values import users

_MOST_OPS = 4096
"""That iterations may become: what Vela, the proof and the report take for each."""
_UNROLLED_GAIN = 1 / 4
"""Of all cycles, for which iterations are written out: each takes a kilobyte or two of commands."""


def cheaper_loops(
    placement: Placement, target: Target, samples: Sequence[Sequence[np.ndarray]], cpu_cycles: CpuCycles
) -> Placement:
    """The placement, or one whose loops give the NPU what takes fewer cycles there.

    That is the products of rows that are known before a loop (`rows-at-once`), for a twentieth fewer cycles; or all of
    its iterations (`unroll-loops`), for a quarter fewer than that. Cycles are those of `cheaper_placement`.

    Raises:
        PassError: placement broke its invariant.
    """
    if not _loops(placement.fused):
        return placement
    best, least = placement, cycles_of(placement, cpu_cycles(placement.module))

    ahead = copy_of(placement.fused)
    RowsAtOnce().run(ahead)
    if bytecode(ahead) != bytecode(placement.fused):
        attempt = place_on(target, npu_forms(ahead, target), samples)
        if (cycles := cycles_of(attempt, cpu_cycles(attempt.module))) <= (1 - LEAST_GAIN) * least:
            best, least = replace(attempt, looped=placement), cycles

    wanted = (1 - _UNROLLED_GAIN) * least
    promised = _npu_cycles(ahead, target)
    if promised is None or promised > wanted:
        return best
    UnrollLoops().run(ahead)
    attempt = place_on(target, npu_forms(ahead, target), samples)
    cheaper = cycles_of(attempt, cpu_cycles(attempt.module)) <= wanted
    return replace(attempt, looped=best) if cheaper else best


def _loops(module: ir.Module) -> list[ir.Operation]:
    return [op for op in computing_ops(functions(module)["main"]) if op.name == LOOP]


def _npu_cycles(module: ir.Module, target: Target) -> int | None:
    """What the NPU takes for all iterations of all loops, about; None where it does not run one, or these are too
    many."""
    cost, cycles, count = COSTS[costs_of(target)], 0, 0
    for loop in _loops(module):
        iterations, ops = iterations_of(loop), _computed(loop)
        count += iterations * len(ops)
        made = [value for op in ops for value in op.results if not set(ops).issuperset(users(value))]
        each = cost(main_of(ops, inputs_of(ops), made)) if iterations <= MOST_JOINED and count <= _MOST_OPS else None
        if each is None:
            return None
        cycles += iterations * each
    return cycles


def _computed(loop: ir.Operation) -> list[ir.Operation]:
    """What an iteration computes, without its number and what moves its rows."""
    counted = {iteration_of(loop).arguments[0]}
    ops = [op.operation for op in iteration_of(loop).operations][:-1]
    return [
        op for op in ops
        if not is_constant(op) and op.name not in ("tosa.gather", "tosa.scatter") and op.operands[0] not in counted
    ]  # fmt: skip
