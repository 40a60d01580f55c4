"""The primitive that computes more than is read: extend."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import around_of, loops_of
from tosaic.backends.cortex_m.program.legal import Use, elements_of, last_values, uses
from tosaic.backends.cortex_m.program.primitives.constants import lengthened
from tosaic.backends.cortex_m.program.primitives.dims import not_held
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.tree import Buffer, For, RefusedError


@PRIMITIVES.register
class Extend(Primitive):
    """`extend(sn, 8)`: a loop over the elements of a buffer of scratch memory gets 8 iterations, so that vectors are
    whole.

    What the further iterations make nobody reads. Constants that they read have zeros there.
    """

    name = "extend"
    takes = ("plain", "extent")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, extent = plain(program.loop(str(arguments[0]))), int(arguments[1])
        if loop.step != 1 or not loop.extent < extent <= 2 * loop.extent + 16:
            raise RefusedError(f"`{loop.var}` of {loop.extent} by {loop.step} is not extended to {extent}")
        counted = [use for use in uses(loop) if any(i[loop.var] for i in use.access.index)]
        written = {use.access.buffer for use in uses(loop) if use.how != "read"}
        if not written <= {use.access.buffer for use in counted}:
            raise RefusedError(f"`{loop.var}` writes what it does not count")
        outside = loops_of(around_of(loop, program.body) or ())
        found = program
        for name in dict.fromkeys(use.access.buffer for use in counted):
            mine = [use for use in uses(loop) if use.access.buffer == name]
            found = self._longer(found, name, mine, loop, (*outside, replace(loop, extent=extent)))
        changed = found.loop(loop.var)
        return with_loop(found, changed, replace(changed, extent=extent))

    def _longer(self, program: Program, name: str, found: list[Use], loop: For, around: tuple[For, ...]) -> Program:
        """The program with a buffer that has room for what further iterations touch."""
        b = program.buffer(name)
        not_held(program.body, name)
        dims = {dim for use in found for dim, i in enumerate(use.access.index) if i[loop.var]}
        indices = {use.access.index[dim] for use in found for dim in dims}
        if len(dims) != 1 or len(indices) != 1 or next(iter(indices))[loop.var] != 1:
            raise RefusedError(f"`{loop.var}` does not count one dimension of {name} alone")
        (dim,), (index,) = dims, indices
        extent = around[-1].extent
        writes = any(use.how != "read" for use in found)
        if b.memory not in (("scratch",) if writes else ("scratch", "const")) or (
            b.memory == "scratch" and index != Affine.of(loop.var)
        ):
            raise RefusedError(f"`{loop.var}` ends where {name} ends")
        nests = [(*around, *(f for f in use.loops if f is not loop)) for use in found]
        end = max(index.bounds(last_values(program, nest))[1] for nest in nests) + 1
        if b.shape[dim] == end:
            if writes and _further(program, b, loop, extent) & _written(program, b, loop):
                raise RefusedError(f"others write what further iterations of `{loop.var}` write of {name}")
            return program
        if b.shape[dim] != end - around[-1].extent + loop.extent:
            raise RefusedError(f"`{loop.var}` does not reach the end of a dimension of {name}")
        return lengthened(program, b, dim, end)


def _further(program: Program, b: Buffer, loop: For, extent: int) -> set[int]:
    """What further iterations of a loop write of a buffer."""
    found = set[int]()
    for use in _writes(program, b, loop, inside=True):
        loops = [replace(f, extent=extent) if f is loop else f for f in use.loops]
        where = b.address(use.access.index)
        found |= elements_of(where, loops) - elements_of(where, use.loops)
    return found


def _written(program: Program, b: Buffer, loop: For) -> set[int]:
    """What others write of it."""
    found = _writes(program, b, loop, inside=False)
    return set[int]().union(*(elements_of(b.address(use.access.index), use.loops) for use in found))


def _writes(program: Program, b: Buffer, loop: For, *, inside: bool) -> list[Use]:
    return [u for u in uses(program.body, b.name) if u.how != "read" and any(f is loop for f in u.loops) == inside]
