"""The primitive that moves what is read, not the weights: push."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.primitives.constants import origins, repacked, uses_of
from tosaic.backends.cortex_m.program.primitives.dims import relaid
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import at, nested, seq, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import written_by
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, For, Op, Reduce, RefusedError, Statement


@PRIMITIVES.register
class Push(Primitive):
    """`push(syb, v, 1)`: the iterations of a loop over sums of products of `v` take the constant of the last one. They
    run from the last one on, and each moves the elements of `v` on by one more. So each iteration's constant is that of
    the next one, moved back, with zeros around.
    """

    name = "push"
    takes = ("sums", "own", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, b, by = plain(program.loop(str(arguments[0]))), program.buffer(str(arguments[1])), int(arguments[2])
        inner = loop.body
        if not isinstance(inner, For) or not isinstance(inner.body, Reduce) or b.name in written_by(loop):
            raise RefusedError(f"`{loop.var}` does not add up products of {b.name}")
        match inner.body.value:
            case Op("mul", (Access() as one, Access() as other)):
                factor, read = (one, other) if other.buffer == b.name else (other, one)
            case _:
                raise RefusedError(f"`{inner.var}` does not add up products")
        w, lane = program.buffers[factor.buffer], Affine.of(inner.var)
        if read.buffer != b.name or read.index != (lane,) or b.shape != (inner.extent,) or not 0 < by < inner.extent:
            raise RefusedError(f"`{inner.var}` does not count {b.name}")
        dims = [d for d, i in enumerate(factor.index) if i == Affine.of(loop.var)]
        counted = len(dims) == 1 and factor.index[-1] == lane and w.shape[dims[0]] == loop.extent
        if w.memory != "const" or not counted or len(uses_of(program, w.name)) != 1:
            raise RefusedError(f"`{loop.var}` does not count a dimension of a constant")
        iterations = np.moveaxis(origins(program, w), dims[0], 0)
        if (
            (iterations[:-1, ..., :-by] != iterations[1:, ..., by:]).any()
            or iterations[:-1, ..., -by:].any()
            or iterations[1:, ..., :by].any()
        ):
            raise RefusedError(f"{w.name} is not what the next iteration of `{loop.var}` has, moved by {by}")
        buffers = [replace(b, name=f"{b.name}_{number}" if number else b.name) for number in range(loop.extent)]
        fresh(program, *(each.name for each in buffers[1:]), *(f"{each.name}m" for each in buffers[1:]))
        last, found = loop.extent - 1, seq()
        for number in reversed(range(loop.extent)):
            iteration = with_accesses(inner, partial(_of, b.name, buffers[number].name))
            found = seq(at(iteration, {loop.var: last - number}), found)
            if number:
                moved = self._moved(buffers[number - 1].name, buffers[number].name, b.size, by)
                found = Alloc(buffers[number], seq(moved, found))
        (dim,) = dims
        shape = (*w.shape[:dim], *w.shape[dim + 1 :])
        changed = relaid(with_loop(program, loop, found), w.name, shape, lambda i, _: (*i[:dim], *i[dim + 1 :]))
        axes = [Affine.of(f"v{axis}") for axis in range(len(shape))]
        return repacked(changed, w, shape, (*axes[:dim], Affine.of(last), *axes[dim:]))

    def _moved(self, source: str, target: str, size: int, by: int) -> Statement:
        var = f"{target}m"
        place = Affine.of(var)
        return nested(Assign(Access(target, (place + by,)), Access(source, (place,))), **{var: size - by})


def _of(name: str, new: str, access: Access) -> Access:
    """An access, of another buffer where it is one of `name`."""
    return access._replace(buffer=new) if access.buffer == name else access
