"""A block with vectors as one statement of assembly: what comes before a hardware loop, the loop, and what comes after.

The list scheduler orders each of the three on the core's timings, and gives out the vectors that live in one of them.
Vectors that live in several, and general registers, have names of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from tosaic.backends.cortex_m.program.assembly import flat
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock
from tosaic.backends.cortex_m.program.dependences import opening_loads
from tosaic.backends.cortex_m.program.general_registers import NUMBERS
from tosaic.backends.cortex_m.program.inline_assembly import VECTORS, assembly
from tosaic.backends.cortex_m.program.list_scheduler import Ordered, ordered
from tosaic.backends.cortex_m.program.pointers import WAYS, Pointers
from tosaic.backends.cortex_m.program.tree import Alloc, Buffer, For, Instr, RefusedError, Statement
from tosaic.backends.cortex_m.program.vector_loops import (
    ENTRY,
    VectorLoop,
    passes_end,
    remembers,
    running_further_ahead,
)
from tosaic.backends.cortex_m.program.vector_order import gathers_together, running_ahead
from tosaic.backends.cortex_m.program.vector_plan import PressureError, VectorPlan
from tosaic.backends.cortex_m.program.vector_steps import addresses
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

_FEW = 2
"""General registers of sums at least."""
_REACH_OF_LOOP = 4000
"""Bytes that LE can jump back."""
_MOST_ITERATIONS = (1 << 16) - 1
_TO_LANES = 2
"""Cycles that a vector of addresses takes beside its pointer."""


@dataclass(frozen=True)
class VectorBlock:
    """A block in C: its constants, its lines, its pointers, and about what it takes by the core's timings; its
    instructions where the core has none."""

    declared: list[str]
    statement: list[str]
    pointers: Pointers
    cycles: int


def has_vectors(body: Statement) -> bool:
    """Whether a block has vectors, numbers of 64 bits, a hardware loop, or instructions of several registers."""
    return any(
        isinstance(s, For)
        or (isinstance(s, Alloc) and s.buffer.memory in ("p", "q"))
        or (isinstance(s, Instr) and s.row.several)
        for s in flat(body)
    )


def vector_block(
    body: Statement,
    buffers: Mapping[str, Buffer],
    pipeline: Pipeline | None,
    last: Mapping[str, int],
    *,
    filled: bool = True,
) -> VectorBlock:
    """The block of a body whose loops are written out, but for a hardware loop.

    Args:
        last: the greatest values of the loops around.
        filled: as of `ordered`.

    Raises:
        RefusedError: it takes more registers than there are, or an iteration is too long.
    """
    outer = flat(body)
    at = next((i for i, s in enumerate(outer) if isinstance(s, For)), len(outer))
    loop = outer[at] if at < len(outer) else None
    assert loop is None or isinstance(loop, For)
    parts = [outer[:at], flat(loop.body) if loop is not None else [], outer[at + 1 :]]
    for count, outside in itertools.product(range(len(NUMBERS), _FEW, -1), (False, True)):
        with suppress(PressureError):
            make = partial(VectorPlan, parts, loop, buffers, pipeline, NUMBERS[:count], outside=outside, filled=filled)
            plan = make()
            found = _block_of(plan, last)
            others = [partial(make, several=several) for several in gathers_together(plan.parts[1], len(plan.free))]
            if any(addresses(step) for step in plan.parts[1]):
                others += [partial(make, by_addresses=way) for way in WAYS]
            for other in others:
                with suppress(RefusedError):
                    found = min(found, _block_of(other(), last), key=attrgetter("cycles"))
            return found
    return _block_of(VectorPlan(parts, loop, buffers, pipeline, NUMBERS[:_FEW], outside=False, filled=filled), last)


def _block_of(plan: VectorPlan, last: Mapping[str, int]) -> VectorBlock:
    before, after = list(_ordered(plan, plan.code[0]).iteration), list(_ordered(plan, plan.code[2]).iteration)
    # The mask of the code around; LR counts the iterations of a hardware loop.
    other = "lr" if plan.loop is None else "r12"
    if plan.mask:
        lanes, bits = plan.mask
        before = [f"mov {plan.count}, #{lanes}", f"vctp.{bits} {plan.count}", *before]
    if plan.predicates:
        before = [f"vmrs {other}, p0", *before]
    loop = _loop(plan, plan.loop, last) if plan.loop is not None else VectorLoop()
    before, after = [*before, *loop.entry], [*loop.leave, *after]
    after = [*after, f"vmsr p0, {other}"] if plan.predicates else after
    if loop.iterations > _MOST_ITERATIONS:
        raise RefusedError(f"a hardware loop of {loop.iterations} iterations is too long")
    whole = VectorLoop((*before,), loop.iteration, (*after,), loop.iterations)
    declared = [each.declared for each in dict.fromkeys([*plan.pointers.lanes.values(), *plan.constants])]
    declared += [f"const int32_t {name} = {distance};" for name, distance in plan.pointers.distances.items()]
    return VectorBlock(declared, _statement(plan, whole), plan.pointers, _cycles(plan, whole))


def _loop(plan: VectorPlan, loop: For, last: Mapping[str, int]) -> VectorLoop:
    """The code of the loop: as the schedule says what runs ahead, or with more of it, where that saves much."""
    opening = len(plan.made(plan.parts[1][: plan.first]))
    code, iterations = [*plan.code[1], *plan.pointers.advanced(plan.is_short)], loop.iterations
    hoisted = loop.ahead if isinstance(loop.ahead, int) and iterations > 1 else 0
    if isinstance(loop.ahead, str) and not opening:
        raise RefusedError(f"an iteration of `{loop.var}` does not open with what makes {loop.ahead}")
    if 4 * len(code) > _REACH_OF_LOOP:
        raise RefusedError(f"a hardware loop of {len(code)} instructions is too long")
    given = _ordered(plan, code[opening:], code[:opening], hoisted, iterations)
    fixed = {*plan.assigned, *plan.held, *plan.read, *plan.halves}
    ahead = running_ahead(plan.parts[1], hoisted, fixed, plan.pointers.addresses)
    left = passes_end(plan.parts[1][: plan.first] if opening else ahead, plan.buffers, loop, last)
    found = VectorLoop(given.entry, given.iteration, given.last if left else (), iterations - left)
    if plan.pipeline is None or not plan.filled or iterations < 2 or remembers(plan.parts[1], plan.buffers):
        return found
    return running_further_ahead(found, code, partial(_ordered, plan, iterations=iterations), plan.pipeline)


def _ordered(
    plan: VectorPlan,
    body: Sequence[BlockInstruction],
    opening: Sequence[BlockInstruction] = (),
    hoisted: int = 0,
    iterations: int = 1,
) -> Ordered:
    fixed = {name: f"%[{name}]" for name in (*plan.pointers.numbers, *plan.read_alone)}
    fixed |= plan.halves
    fixed |= {name: f"%q[{name}]" for name in (*plan.pointers.lanes, *(each.name for each in plan.constants))}
    registers = {**fixed, **plan.assigned, **plan.held, **plan.carry}
    block = InstructionBlock(tuple(body), registers, plan.free, tuple(opening))
    if len(opening_loads(block, hoisted)) == hoisted:
        try:
            found = ordered(block, plan.pipeline, hoisted, iterations, filled=plan.filled)
        except BackendError as error:
            raise RefusedError(error.what) from None
        if len(found.entry) >= hoisted:
            return found
    raise RefusedError(f"an iteration does not open with {hoisted} loads that can run ahead")


def _statement(plan: VectorPlan, code: VectorLoop) -> list[str]:
    starts, moving = plan.pointers.starts, plan.pointers.moving
    used = " ".join([*code.entry, *code.iteration, *code.leave])
    vectors = [v for v in VECTORS if v in used]
    changes = [*(name for name in starts if name in moving), *plan.changed]
    reads = [*(name for name in starts if name not in moving), *plan.read_alone]
    numbers = sorted({*plan.assigned.values()} | plan.taken)
    constants, lanes = [each.name for each in plan.constants], plan.pointers.lanes
    return assembly(*code, changes, reads, numbers, constants, vectors, lanes)


def _cycles(plan: VectorPlan, code: VectorLoop) -> int:
    if plan.pipeline is None:
        return len(code.entry) + len(code.iteration) * code.iterations + len(code.leave)
    return code.cycles(plan.pipeline) + _TO_LANES * len(plan.pointers.lanes) + ENTRY * (code.iterations > 0)
