"""Kernels of stages that nobody has written: what they compute of rows, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.program.interpret import Meaning
from tosaic.backends.cortex_m.streams.memory import Strips
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.streams.stage import EDGE, Argument, Stage
from tosaic.backends.cortex_m.streams.stream import Stream


def kernels_of(plan: Plan) -> Strips:
    """A kernel for each stage, and each number of rows that a call makes."""
    counts = enumerate(plan.calls)
    return {
        (number, made): [KernelSource(f"stage{number}_{made}", "c", "", scratch_bytes=32)]
        for number, calls in counts
        for made in calls
        if plan.stream.stages[number].module
    }


def meanings_of(plan: Plan) -> Mapping[str, Meaning]:
    """What these kernels make of strips of rows."""

    def of(number: int, made: int) -> Meaning:
        def meaning(*given: np.ndarray) -> Sequence[np.ndarray]:
            stage = plan.stream.stages[number]
            rows = [each.reshape(-1, a.bytes) for each, a in zip(given, stage.arguments, strict=False)]
            return [np.concatenate([_together(number, stage, rows, at) for at in range(0, made, stage.together)])]

        return meaning

    return {source.symbol: of(*call) for call, (source,) in kernels_of(plan).items()}


def results_of(stream: Stream, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The rows of every tensor, made of whole tensors."""
    known = {name: rows.astype(np.int8) for name, rows in inputs.items()}
    for number, (stage, names, made) in enumerate(zip(stream.stages, stream.reads, stream.writes, strict=True)):
        rows = [_padded(known[name], a, stage.height) for name, a in zip(names, stage.arguments, strict=True)]
        if stage.module:
            part = np.concatenate([_together(number, stage, rows, at) for at in range(0, stage.height, stage.together)])
        else:
            (taken,) = stage.arguments
            part = rows[0][: stage.height, taken.offset :][:, : stage.bytes]
        whole = known.setdefault(made, np.zeros((stage.height, stage.step), np.int8))
        whole[:, stage.offset :][:, : stage.bytes] = part
    return known


def _padded(rows: np.ndarray, argument: Argument, height: int) -> np.ndarray:
    """The rows from the first one that a result is made of, those of padding too."""
    assert argument.rows is not None
    above, below = argument.rows.before, max(0, argument.rows.end(height) - argument.height)
    padding = argument.padding - 256 if argument.padding > 127 else argument.padding
    around = (
        np.full((max(0, above), rows.shape[1]), padding, np.int8),
        np.full((below, rows.shape[1]), padding, np.int8),
    )
    if argument.padding == EDGE:
        around = rows[:1].repeat(max(0, above), 0), rows[-1:].repeat(below, 0)
    return np.concatenate([around[0], rows, around[1]])[max(0, -above) :]


def _together(number: int, stage: Stage, rows: Sequence[np.ndarray], at: int) -> np.ndarray:
    """The rows from `at` on that are made together: each row that they are made of counts otherwise."""
    total = np.zeros((stage.together, stage.bytes), np.int64) + number
    for argument, given in zip(stage.arguments, rows, strict=False):
        assert argument.rows is not None
        first = argument.rows.stride * (at // stage.together)
        for row in range(argument.rows.reach):
            total += (2 * row + 3) * given[first + row, : stage.bytes].astype(np.int64)
    total += np.arange(stage.together)[:, None]
    return total.astype(np.int8)
