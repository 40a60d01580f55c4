"""Primitive that puts a value where it is read: inline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.primitives.buffers import scope_of
from tosaic.backends.cortex_m.program.primitives.dims import not_held
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import exchanged, mapped, nest_of, seq, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import touches
from tosaic.backends.cortex_m.program.tree import Access, Assign, Buffer, For, If, RefusedError, Statement


@PRIMITIVES.register
class Inline(Primitive):
    """`inline(P)`: what reads a copy reads its source instead. What copies a copy under conditions does so under
    these."""

    name = "inline"
    takes = ("computed",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b = program.buffer(str(arguments[0]))
        scope = scope_of(program, b.name)
        loops, inner = nest_of(scope.maker)
        conditions = inner.conditions if isinstance(inner, If) else ()
        sources = [_source(s, loops, b) for s in ((inner.then, inner.otherwise) if isinstance(inner, If) else (inner,))]
        for source in sources:
            if source.buffer in scope.changed():
                raise RefusedError(f"{source.buffer} changes before {b.name} is read")
        not_held(scope.user, b.name)

        def values(read: Access) -> dict[str, Affine]:
            return {f.var: i for f, i in zip(loops, read.index[len(b.shape) - len(loops) :], strict=True)}

        def straight(read: Access, source: Access = sources[0]) -> Access:
            return Access(source.buffer, tuple(i.at(values(read)) for i in source.index))

        def one(s: Statement) -> Statement:
            if not isinstance(s, Assign) or not isinstance(s.value, Access) or s.value.buffer != b.name:
                return s
            parts = (replace(s, value=straight(s.value, source)) for source in sources)
            return If(tuple(c.at(values(s.value)) for c in conditions), *parts) if conditions else next(parts)

        rest = seq(*(mapped(p, one) for p in scope.parts if p is not scope.maker))
        if conditions and any(access.buffer == b.name for _, access in touches(rest)):
            raise RefusedError(f"more than copies reads {b.name}, which is made under conditions")
        rest = with_accesses(rest, lambda a: straight(a) if a.buffer == b.name else a)
        return replace(program, body=exchanged(program.body, scope.alloc, rest))


def _source(s: Statement, loops: Sequence[For], b: Buffer) -> Access:
    """What is copied to an element of a buffer, which loops count, but for outer dimensions of one.

    Raises:
        RefusedError: it is no copy, or not that of each element.
    """
    if not isinstance(s, Assign) or not isinstance(s.value, Access):
        raise RefusedError(f"{b.name} is no plain copy")
    outer = len(b.shape) - len(loops)
    counted = (*[Affine()] * outer, *(Affine.of(f.var) for f in loops))
    if s.target.index != counted or any(extent > 1 for extent in b.shape[:outer]):
        raise RefusedError(f"{b.name} is not copied element by element")
    return s.value
