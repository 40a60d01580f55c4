"""Primitives on where data lies and when it is computed: stage, place, compute_at, inline; see `lifetimes`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import stands_in
from tosaic.backends.cortex_m.program.holding import holds, in_class
from tosaic.backends.cortex_m.program.legal import Use, covers, reads_old, uses
from tosaic.backends.cortex_m.program.legal_windows import Window, window_of, windows_inside
from tosaic.backends.cortex_m.program.primitives.dims import not_held, not_indexed
from tosaic.backends.cortex_m.program.primitives.loops import plain, renamed, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import at, exchanged, mapped, nest_of, nested, seq, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import own_buffers, tables_of, touches, written_by
from tosaic.backends.cortex_m.program.tree import (
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    RefusedError,
    Seq,
    Statement,
)


def whole_registers(b: Buffer) -> None:
    """Guard: a buffer fills the registers that it lies in.

    Raises:
        RefusedError: it does not.
    """
    if b.in_registers and not in_class(b.dtype, b.memory):
        raise RefusedError(f"registers `{b.memory}` hold no {b.dtype}")
    if b.lanes > 1 and (not b.shape or b.shape[-1] % b.lanes):
        raise RefusedError(f"{list(b.shape)} of {b.dtype} is no whole register `{b.memory}`")


def in_whole_registers(b: Buffer) -> Buffer:
    """A buffer whose last dimension has lanes of vectors behind it, which nothing uses, up to a whole one.

    Raises:
        RefusedError: it fills no registers of another class.
    """
    if b.memory == "q" and b.shape:
        b = replace(b, shape=(*b.shape[:-1], -(-b.shape[-1] // b.lanes) * b.lanes))
    whole_registers(b)
    return b


@PRIMITIVES.register
class StageWindow(Primitive):
    """`stage(a, k, va, r, i32)`: what an iteration of loop `k` touches of `a` is copied to `va` first, in registers `r`
    or in `scratch`, as i32; what the iteration writes is copied back. Scratch memory gets what lies between, too.

    `stage(w, n, vw, q, i8, x)`: only what is read in loop `x` inside is, of what does not change in the iteration.
    Where values say what is read, all is copied.
    """

    name = "stage"
    takes = ("buffer", "loop", "name", "memory", "dtype", "loop")
    optional = 2

    def apply(self, program: Program, *arguments: Argument) -> Program:
        name, var, new, memory = map(str, arguments[:4])
        loop, b = program.loop(var), program.buffer(name)
        dtype = str(arguments[4]) if len(arguments) > 4 else b.dtype
        fresh(program, new)
        if memory not in ("scratch", *REGISTERS) or not holds(dtype, b.dtype):
            raise RefusedError(f"{name} is not staged in `{memory}` as `{dtype}`")
        within = program.loop(str(arguments[5])) if len(arguments) > 5 else None
        found = uses(loop.body, name)
        not_held(loop.body, name)
        if within is not None:
            if any(u.how != "read" for u in found) or not stands_in(within, loop.body):
                raise RefusedError(f"{name} is not read alone in `{within.var}` inside of `{var}`")
            inside = [u for u in found if within in u.loops]
            if len(inside) in (0, len(found)):
                raise RefusedError(f"`{within.var}` reads all, or nothing, of {name}")
            found = inside
        is_table = name in tables_of(loop.body)
        if is_table and memory != "scratch":
            raise RefusedError(f"values say what is read of {name}")
        if not found or name in own_buffers(loop.body):
            raise RefusedError(f"an iteration of `{var}` does not touch {name}")
        windows = [window_of([(u.access.index[dim], u.loops) for u in found]) for dim in range(len(b.shape))]
        windows = [Window(Affine(), extent, 1, dense=True) for extent in b.shape] if is_table else windows
        windows_inside(program, loop, b, windows)
        windows = [window._replace(step=1) for window in windows] if memory == "scratch" else windows
        kept = [dim for dim, window in enumerate(windows) if window.elements > 1]
        lane = len(b.shape) - 1
        if memory == "q" and b.shape and lane not in kept and (not kept or _is_counted(found, lane)):
            kept.append(lane)
        buffer = in_whole_registers(Buffer(new, dtype, tuple(windows[dim].elements for dim in kept), memory))
        names = {dim: f"{new}{i}" for i, dim in enumerate(kept)}
        fresh(program, *names.values())
        if memory in REGISTERS and any(not w.dense for w in windows):
            raise RefusedError(f"an iteration of `{var}` reads {name} with gaps")
        written = any(u.how != "read" for u in found)
        places = {d: Affine.of(names[d]) * windows[d].step for d in kept}
        outer = Access(name, tuple(w.base + places.get(d, 0) for d, w in enumerate(windows)))
        inner = Access(new, tuple(Affine.of(names[dim]) for dim in kept))

        def moved(a: Access) -> Access:
            return Access(new, tuple(windows[d].number(a.index[d]) for d in kept)) if a.buffer == name else a

        size = math.prod(windows[dim].elements for dim in kept)
        read = reads_old(b, found) or (written and not covers(b, found, size))
        back = {names[dim]: f"{names[dim]}o" for dim in kept} if read else {}
        fresh(program, *back.values())
        extents = {names[dim]: windows[dim].elements for dim in kept}
        parts = [_copied(inner, outer, extents, {})] if read else []
        changed = loop.body if within is None else within
        parts += [exchanged(loop.body, changed, with_accesses(changed, moved))]
        parts += [_copied(outer, inner, extents, back)] if written else []
        return with_loop(program, loop, replace(loop, body=Alloc(buffer, seq(*parts))))


def _is_counted(found: Sequence[Use], dim: int) -> bool:
    """Whether a loop inside of an iteration counts a dimension, be it one element of it."""
    return any(use.access.index[dim][f.var] for use in found for f in use.loops)


def _copied(to: Access, source: Access, extents: Mapping[str, int], names: Mapping[str, str]) -> Statement:
    """Loops that copy an element each; `names` are other names for them."""
    found = nested(Assign(to, source), **extents)
    if not names:
        return found
    renamed = at(found, {old: Affine.of(new) for old, new in names.items()})
    return mapped(renamed, lambda s: replace(s, var=names[s.var]) if isinstance(s, For) else s)


@PRIMITIVES.register
class PlaceBuffer(Primitive):
    """`place(S, r)`: a buffer of scratch memory lies in registers."""

    name = "place"
    takes = ("computed", "memory")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, memory = program.buffer(str(arguments[0])), str(arguments[1])
        if b.memory != "scratch" or memory not in REGISTERS:
            raise RefusedError(f"{b.name} in {b.memory} is not placed in `{memory}`")
        not_held(program.body, b.name)
        new = replace(b, memory=memory)
        whole_registers(new)
        if new.bytes > 32 * REGISTERS[memory]:
            raise RefusedError(f"{b.name}{list(b.shape)} takes more registers `{memory}` than any core has")

        def one(s: Statement) -> Statement:
            return Alloc(new, s.body) if isinstance(s, Alloc) and s.buffer.name == b.name else s

        return replace(program, body=mapped(program.body, one))


class BufferScope(NamedTuple):
    """Where a buffer lives, the one statement that makes it, and the one that reads it.

    Args:
        parts: all statements beside these two, which are among them.
    """

    alloc: Alloc
    maker: Statement
    user: Statement
    parts: tuple[Statement, ...]

    def changed(self) -> set[str]:
        """The names of buffers that change from where the buffer is made to where it was read last."""
        behind = self.parts[self.parts.index(self.maker) + 1 : self.parts.index(self.user) + 1]
        return set().union(*(written_by(part) - own_buffers(part) for part in behind))


def scope_of(program: Program, name: str) -> BufferScope:
    """Where a buffer lives.

    Raises:
        RefusedError: it is no buffer that one statement makes for another one behind it.
    """
    not_indexed(program.body, name)
    scopes = [s for s in program.statements if isinstance(s, Alloc) and s.buffer.name == name]
    if not scopes or not isinstance(scopes[0].body, Seq):
        raise RefusedError(f"{name} is not computed beside what reads it")
    parts = scopes[0].body.body
    makers = [p for p in parts if name in written_by(p)]
    users = [p for p in parts if any(how == "read" and a.buffer == name for how, a in touches(p)) and p not in makers]
    if len(makers) != 1 or len(users) != 1 or parts.index(makers[0]) > parts.index(users[0]):
        raise RefusedError(f"{name} is not made by one statement for another one behind it")
    return BufferScope(scopes[0], makers[0], users[0], parts)


@PRIMITIVES.register
class ComputeAt(Primitive):
    """`compute_at(S, x)`: what computes a buffer moves into the loop `x` of what reads it, for what an iteration reads.

    `compute_at(S, x, u)`: what others read is left to them; in `x` names end in `_u`.
    """

    name = "compute_at"
    takes = ("computed", "loop", "name")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        name, var = str(arguments[0]), str(arguments[1])
        own = f"_{arguments[2]}" if len(arguments) > 2 else ""
        loop, b = program.loop(var), program.buffer(name)
        scope = scope_of(program, name)
        made, user = scope.maker, scope.user
        if not stands_in(loop, user):
            raise RefusedError(f"`{var}` is not in the statement that reads {name}")
        if loop.kind != "each":
            raise RefusedError(f"`{var}` is no plain loop")
        reads = uses(loop.body, name)
        others = len(reads) != len(uses(user, name))
        if others and not own:
            raise RefusedError(f"{name} is read outside of `{var}` too")
        if own:
            fresh(program, f"{name}{own}")
        if written_by(made) - own_buffers(made) != {name}:
            raise RefusedError(f"what computes {name} writes more than that")
        if any(a.buffer in scope.changed() for how, a in touches(made) if how == "read"):
            raise RefusedError(f"what computes {name} reads what changes before")
        loops, inner = nest_of(made)
        nest = list(map(plain, loops))
        counted = self._counted(b, made, nest)
        windows = [window_of([(u.access.index[dim], u.loops) for u in reads]) for dim in range(len(b.shape))]
        windows_inside(program, loop, b, windows)
        back = [w.base if d in counted else Affine() for d, w in enumerate(windows)]
        shape = tuple(w.extent if d in counted else b.shape[d] for d, w in enumerate(windows))
        starts = {counted[d].var: back[d] + counted[d].var for d in counted}
        dims = {f.var: d for d, f in counted.items()}
        maker = at(inner, starts)
        for f in reversed(nest):
            extent = shape[dims[f.var]] if f.var in dims else f.extent
            maker = replace(f, extent=extent, body=maker) if extent > 1 else at(maker, {f.var: 0})

        maker = renamed(program, maker, own) if own else maker

        def shrunk(a: Access) -> Access:
            if a.buffer != name:
                return a
            moved = (i - start for i, start in zip(a.index, back, strict=True))
            return Access(name + own, tuple(i if n > 1 else Affine() for i, n in zip(moved, shape, strict=True)))

        body = Alloc(replace(b, name=name + own, shape=shape), with_accesses(seq(maker, loop.body), shrunk))
        if others:
            return with_loop(program, loop, replace(loop, body=body))
        rest = seq(*(exchanged(p, loop, replace(loop, body=body)) for p in scope.parts if p is not made))
        return replace(program, body=exchanged(program.body, scope.alloc, rest))

    def _counted(self, b: Buffer, made: Statement, nest: list[For]) -> dict[int, For]:
        """By dimension, the outer loop of what makes a buffer that counts it, and counts nothing else of it."""
        found = dict[int, For]()
        indices = [a.index for _, a in touches(made) if a.buffer == b.name]
        for f in nest:
            dims = [d for d in range(len(b.shape)) if all(i[d] == Affine.of(f.var) for i in indices)]
            others = any(i[d][f.var] for i in indices for d in range(len(b.shape)) if d not in dims)
            if f.step == 1 and len(dims) == 1 and not others and f.extent == b.shape[dims[0]]:
                found[dims[0]] = f
        return found
