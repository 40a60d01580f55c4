"""Primitives on how long buffers live: expand."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.primitives.dims import not_held
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.tree import Access, Alloc, RefusedError


@PRIMITIVES.register
class Expand(Primitive):
    """`expand(S, n)`: a buffer of scratch memory that each iteration of loop `n` has anew lives around it, with a first
    dimension that `n` counts."""

    name = "expand"
    takes = ("own", "around")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        name, loop = str(arguments[0]), plain(program.loop(str(arguments[1])))
        if not isinstance(loop.body, Alloc) or loop.body.buffer.name != name or loop.step != 1:
            raise RefusedError(f"{name} does not live right in `{loop.var}`, of iterations that are apart")
        b, body = loop.body.buffer, loop.body.body
        not_held(body, name)
        if b.memory != "scratch":
            raise RefusedError(f"{name} lies in {b.memory}")

        def longer(access: Access) -> Access:
            return Access(name, (Affine.of(loop.var), *access.index)) if access.buffer == name else access

        new = replace(b, shape=(loop.extent, *b.shape))
        return with_loop(program, loop, Alloc(new, replace(loop, body=with_accesses(body, longer))))
