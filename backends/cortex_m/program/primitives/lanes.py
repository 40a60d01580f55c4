"""The primitive lanes: what an iteration of a loop assigns, for many iterations at a time."""

from __future__ import annotations

import itertools

from tosaic.backends.cortex_m.program.around import stands_in
from tosaic.backends.cortex_m.program.lane_forms import LaneForms
from tosaic.backends.cortex_m.program.lane_vectors import VECTOR, LaneVectors, SpreadNumbers
from tosaic.backends.cortex_m.program.lane_writer import LaneWriter
from tosaic.backends.cortex_m.program.legal import why_not_apart
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import accesses, exchanged, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import without_unread
from tosaic.backends.cortex_m.program.tree import Alloc, Assign, For, RefusedError, Seq

_LANES = (4, 8, 16)


@PRIMITIVES.register
class InLanes(Primitive):
    """`lanes(x, xi, 16)`: what the iterations of loop `xi` assign is computed in vectors of 16 lanes, operation by
    operation; several vectors take turns. Wider numbers take several vectors: those of even and of odd lanes. Numbers
    fill some vectors first in an iteration of `x`, around it."""

    name = "lanes"
    takes = ("loop", "plain", "lanes")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        outer, loop = program.loop(str(arguments[0])), plain(program.loop(str(arguments[1])))
        each = int(arguments[2])
        if each not in _LANES or loop.step != 1 or (loop.extent > each and loop.extent % each):
            raise RefusedError(f"`{loop.var}` of {loop.extent} by {loop.step} is no vectors of {each} lanes")
        if not stands_in(loop, outer.body):
            raise RefusedError(f"`{loop.var}` does not stand in `{outer.var}`")
        if why := why_not_apart(program, loop, loop.var):
            raise RefusedError(why)
        spread, bits = SpreadNumbers(program, outer), VECTOR // each
        forms, made = LaneForms(program, loop, bits, _assignments(program, loop)), list[LaneVectors]()
        for first in range(0, loop.extent, each):
            made.append(LaneVectors(dict(program.buffers), spread, f"{loop.var}{first // each}"))
            LaneWriter(forms, made[-1], first, min(each, loop.extent - first)).write()
        iterations = itertools.zip_longest(*(vectors.made for vectors in made))
        found = seq(*(part for parts in iterations for part in parts if part is not None))
        buffers = [buffer for vectors in made for buffer in vectors.allocated]
        fresh(program, *(buffer.name for buffer in buffers), *spread.made)
        for buffer in reversed(buffers):
            found = Alloc(buffer, found)
        program = with_loop(program, outer, spread.before(outer, exchanged(outer.body, loop, found)))
        buffers = [*program.arguments, *spread.constants]
        return without_unread(Program(tuple(buffers), program.body, (*program.host, *spread.derived)))


def _assignments(program: Program, loop: For) -> list[Assign]:
    """What an iteration assigns, in order.

    Raises:
        RefusedError: it does something else, too.
    """
    body, own = loop.body, set[str]()
    while isinstance(body, Alloc):
        own, body = own | {body.buffer.name}, body.body
    parts = body.body if isinstance(body, Seq) else (body,)
    found, known = [part for part in parts if isinstance(part, Assign)], set[str]()
    if len(found) < len(parts) or any(program.buffers[name].shape for name in own):
        raise RefusedError(f"an iteration of `{loop.var}` does more than assign numbers")
    stored = {s.target.buffer for s in found} - own
    for s in found:
        read = {access.buffer for access in accesses(s.value)}
        if s.target.buffer in known or read & stored or not read & own <= known:
            raise RefusedError(f"an iteration of `{loop.var}` does not assign {s.target} once, before it is read")
        known |= {s.target.buffer} & own
    return found
