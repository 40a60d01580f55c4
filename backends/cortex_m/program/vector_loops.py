"""A hardware loop in the order of execution: with the part of an iteration that the schedule lets run ahead, or with
more of it, where that saves much."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tosaic.backends.cortex_m.program.block import BlockInstruction
from tosaic.backends.cortex_m.program.block_cycles import cycles_of, least_cycles, loop_cycles
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.list_scheduler import Ordered
from tosaic.backends.cortex_m.program.pointers import bytes_ahead
from tosaic.backends.cortex_m.program.tree import Buffer, For, RefusedError
from tosaic.backends.cortex_m.program.vector_steps import VectorStep, use_of
from tosaic.backends.target import Pipeline

ENTRY = 5
"""Cycles to enter a hardware loop."""
_FEW_ITERATIONS = 4
"""From how many iterations on more of one may run ahead."""
_CUTS = (1 / 8, 1 / 4, 5 / 12)
"""What of an iteration runs ahead then."""
_IDLE, _WORTH_A_CUT = 1 / 25, 1 / 50
"""What of the cycles is idle where that is tried, and what of them it must save: code behind the loop takes flash."""

_VECTOR = 16
"""The most bytes that an access touches."""


class VectorLoop(NamedTuple):
    """The lines before a loop, of an iteration, and behind; none where `iterations` is 0."""

    entry: tuple[str, ...] = ()
    iteration: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    iterations: int = 0

    def cycles(self, pipeline: Pipeline) -> int:
        """Its cycles by the core's timings."""
        around = sum(cycles_of(part, pipeline) for part in (self.entry, self.leave))
        return around + loop_cycles(self.iteration, pipeline, self.iterations)


def running_further_ahead(
    given: VectorLoop,
    code: Sequence[BlockInstruction],
    ordered: Callable[[Sequence[BlockInstruction], Sequence[BlockInstruction]], Ordered],
    pipeline: Pipeline,
) -> VectorLoop:
    """The loop that takes the least: as given, or with the first instructions of an iteration in the one before.

    Args:
        given: as the schedule says what runs ahead.
        code: an iteration in the order of its meaning.
        ordered: the order of an iteration, given what of it runs in its own turn, and what ahead.
    """
    if given.iterations < _FEW_ITERATIONS:
        return given
    iterations = given.iterations + bool(given.leave)
    best, cycles, least = given, given.cycles(pipeline), iterations * least_cycles(given.iteration, pipeline)
    for cut in (int(len(code) * part) for part in _CUTS):
        if cut == 0 or (1 - _IDLE) * cycles <= least:
            continue
        with suppress(RefusedError):
            found = ordered(code[cut:], code[:cut])
            other = VectorLoop(found.entry, found.iteration, found.last, iterations - 1)
            if other.cycles(pipeline) < (1 - _WORTH_A_CUT) * cycles:
                best, cycles = other, other.cycles(pipeline)
    return best


def remembers(iteration: Sequence[VectorStep], buffers: Mapping[str, Buffer]) -> bool:
    """Whether an iteration may read what one before it wrote into memory."""
    uses = [(use.buffer, bool(step.targets)) for step in iteration if (use := use_of(step, buffers)) is not None]
    return not {name for name, reads in uses if reads}.isdisjoint(name for name, reads in uses if not reads)


def passes_end(ahead: Sequence[VectorStep], buffers: Mapping[str, Buffer], loop: For, last: Mapping[str, int]) -> bool:
    """Whether steps that run ahead of the last iteration may read behind a buffer, or write."""
    if any(not step.targets for step in ahead):
        return True
    uses = [(use, step.beyond) for step in ahead if (use := use_of(step, buffers)) is not None]
    for use, beyond in uses:
        b = buffers[use.buffer]
        end = b.bytes + SLACK * (b.memory in ("const", "scratch"))
        span = beyond + max(_VECTOR, use.row.lanes // math.prod(use.row.inner) * use.stride)
        if use.where[loop.var] and bytes_ahead(use, loop, last) + span > end:
            return True
    return False
