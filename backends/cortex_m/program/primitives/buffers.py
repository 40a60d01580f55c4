"""Primitives on where data lies and when it is computed: stage, place, compute_at, inline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.legal import elements_of, uses, window_of
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.rewriting import (
    at,
    exchanged,
    mapped,
    own_buffers,
    seq,
    touches,
    with_accesses,
    written_by,
)
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Instr,
    Program,
    RefusedError,
    Seq,
    Statement,
    walk,
)


def whole_registers(b: Buffer) -> None:
    """Guard: a buffer fills the registers that it lies in.

    Raises:
        RefusedError: it does not.
    """
    if b.lanes > 1 and (not b.shape or b.shape[-1] % b.lanes):
        raise RefusedError(f"{list(b.shape)} of {b.dtype} is no whole register `{b.memory}`")


@PRIMITIVES.register
class Stage(Primitive):
    """`stage(a, k, va, r, i32)`: what a turn of loop `k` touches of `a` is copied to `va` first, in registers `r` or in
    `scratch`, as i32; what the turn writes is copied back."""

    name = "stage"
    takes = ("buffer", "loop", "name", "memory", "dtype")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        name, var, new, memory = map(str, arguments[:4])
        loop, b = program.loop(var), program.buffer(name)
        dtype = str(arguments[4]) if len(arguments) > 4 else b.dtype
        fresh(program, new)
        if memory not in ("scratch", *REGISTERS) or BYTES.get(dtype, 0) < BYTES[b.dtype]:
            raise RefusedError(f"{name} is not staged in `{memory}` as `{dtype}`")
        found = [use._replace(loops=use.loops[1:]) for use in uses(loop, name)]
        if any(isinstance(s, Instr) and any(o.buffer == name for o in s.operands) for s in walk(loop.body)):
            raise RefusedError(f"instructions hold {name} as it lies")
        if not found or name in own_buffers(loop.body):
            raise RefusedError(f"a turn of `{var}` does not touch {name}")
        windows = [window_of([(u.access.index[dim], u.loops) for u in found]) for dim in range(len(b.shape))]
        kept = [dim for dim, window in enumerate(windows) if window.extent > 1]
        buffer = Buffer(new, dtype, tuple(windows[dim].extent for dim in kept), memory)
        whole_registers(buffer)
        names = {dim: f"{new}{i}" for i, dim in enumerate(kept)}
        fresh(program, *names.values())
        if memory in REGISTERS and any(not w.dense for w in windows):
            raise RefusedError(f"a turn of `{var}` reads {name} with gaps")
        written = any(u.how != "read" for u in found)
        if written and (any(not w.dense for w in windows) or self._diagonal(found)):
            raise RefusedError(f"a turn of `{var}` writes only a part of what it spans of {name}")
        outer = Access(name, tuple(w.base + names[d] if d in names else w.base for d, w in enumerate(windows)))
        inner = Access(new, tuple(Affine.of(names[dim]) for dim in kept))

        def moved(a: Access) -> Access:
            return Access(new, tuple(a.index[d] - windows[d].base for d in kept)) if a.buffer == name else a

        read = self._reads_old(b, found)
        back = {names[dim]: f"{names[dim]}o" for dim in kept} if read else {}
        fresh(program, *back.values())
        extents = {names[dim]: windows[dim].extent for dim in kept}
        parts = [_copied(inner, outer, extents, {})] if read else []
        parts += [with_accesses(loop.body, moved)]
        parts += [_copied(outer, inner, extents, back)] if written else []
        return with_loop(program, loop, replace(loop, body=Alloc(buffer, seq(*parts))))

    def _diagonal(self, found: list) -> bool:
        """Whether a loop moves along two dimensions at once."""
        return any(sum(i[f.var] != 0 for i in u.access.index) > 1 for u in found for f in u.loops)

    def _reads_old(self, b: Buffer, found: list) -> bool:
        """Whether a turn reads, or adds to, what it has not written before."""
        begun = set[int]()
        for u in found:
            where = b.address(u.access.index)
            inside = [f for f in u.loops if where[f.var]]
            elements = elements_of(where.at(dict.fromkeys(where.names - {f.var for f in inside}, 0)), inside)
            if u.how != "write" and not elements <= begun:
                return True
            begun |= elements if u.how == "write" else set()
        return False


def _copied(to: Access, source: Access, extents: Mapping[str, int], names: Mapping[str, str]) -> Statement:
    """Loops that copy an element each; `names` are other names for them."""
    found: Statement = Assign(to, source)
    for var, extent in reversed(list(extents.items())):
        found = For(var, extent, found)
    if not names:
        return found
    renamed = at(found, {old: Affine.of(new) for old, new in names.items()})
    return mapped(renamed, lambda s: replace(s, var=names[s.var]) if isinstance(s, For) else s)


@PRIMITIVES.register
class Place(Primitive):
    """`place(S, r)`: a buffer of scratch memory lies in registers."""

    name = "place"
    takes = ("buffer", "memory")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, memory = program.buffer(str(arguments[0])), str(arguments[1])
        if b.memory != "scratch" or memory not in REGISTERS:
            raise RefusedError(f"{b.name} in {b.memory} is not placed in `{memory}`")
        new = replace(b, memory=memory)
        whole_registers(new)
        if new.bytes > 32 * REGISTERS[memory]:
            raise RefusedError(f"{b.name}{list(b.shape)} takes more registers `{memory}` than any core has")

        def one(s: Statement) -> Statement:
            return Alloc(new, s.body) if isinstance(s, Alloc) and s.buffer.name == b.name else s

        return replace(program, body=mapped(program.body, one))


def _home(program: Program, name: str) -> tuple[Alloc, Statement, Statement]:
    """Where a buffer lives: its Alloc, the one statement that makes it, the one that reads it.

    Raises:
        RefusedError: it is no buffer that one statement makes for another one beside it.
    """
    homes = [s for s in program.statements if isinstance(s, Alloc) and s.buffer.name == name]
    if not homes or not isinstance(homes[0].body, Seq):
        raise RefusedError(f"{name} is not computed beside what reads it")
    parts = homes[0].body.body
    makers = [p for p in parts if name in written_by(p)]
    users = [p for p in parts if any(how == "read" and a.buffer == name for how, a in touches(p)) and p not in makers]
    if len(makers) != 1 or len(users) != 1 or parts.index(makers[0]) > parts.index(users[0]):
        raise RefusedError(f"{name} is not made by one statement for another one behind it")
    return homes[0], makers[0], users[0]


@PRIMITIVES.register
class ComputeAt(Primitive):
    """`compute_at(S, x)`: what computes a buffer moves into the loop `x` of what reads it, for what a turn reads."""

    name = "compute_at"
    takes = ("buffer", "loop")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        name, var = map(str, arguments)
        loop, b = program.loop(var), program.buffer(name)
        home, made, user = _home(program, name)
        if not any(s is loop for s in walk(user)):
            raise RefusedError(f"`{var}` is not in the statement that reads {name}")
        if loop.kind != "each":
            raise RefusedError(f"`{var}` is no plain loop")
        reads = [use._replace(loops=use.loops[1:]) for use in uses(loop, name)]
        if len(reads) != sum(a.buffer == name for _, a in touches(user)):
            raise RefusedError(f"{name} is read outside of `{var}` too")
        if any(a.buffer in written_by(user) - own_buffers(user) for how, a in touches(made) if how == "read"):
            raise RefusedError(f"what computes {name} reads what changes before")
        nest, inner = list[For](), made
        while isinstance(inner, For):
            nest.append(plain(inner))
            inner = inner.body
        counted = self._counted(b, made, nest)
        windows = [window_of([(u.access.index[dim], u.loops) for u in reads]) for dim in range(len(b.shape))]
        back = [w.base if d in counted else Affine() for d, w in enumerate(windows)]
        shape = tuple(w.extent if d in counted else b.shape[d] for d, w in enumerate(windows))
        starts = {counted[d].var: back[d] + counted[d].var for d in counted}
        dims = {f.var: d for d, f in counted.items()}
        maker = at(inner, starts)
        for f in reversed(nest):
            extent = shape[dims[f.var]] if f.var in dims else f.extent
            maker = replace(f, extent=extent, body=maker) if extent > 1 else at(maker, {f.var: 0})

        def shrunk(a: Access) -> Access:
            return (
                Access(name, tuple(i - start for i, start in zip(a.index, back, strict=True)))
                if a.buffer == name
                else a
            )

        body = Alloc(replace(b, shape=shape), with_accesses(seq(maker, loop.body), shrunk))
        assert isinstance(home.body, Seq)
        rest = seq(*(exchanged(p, loop, replace(loop, body=body)) for p in home.body.body if p is not made))
        return replace(program, body=exchanged(program.body, home, rest))

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


@PRIMITIVES.register
class Inline(Primitive):
    """`inline(P)`: what reads a copy reads its source instead."""

    name = "inline"
    takes = ("buffer",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b = program.buffer(str(arguments[0]))
        home, made, user = _home(program, b.name)
        inner, loops = made, list[For]()
        while isinstance(inner, For):
            loops.append(inner)
            inner = inner.body
        if not isinstance(inner, Assign) or not isinstance(inner.value, Access):
            raise RefusedError(f"{b.name} is no plain copy")
        source, index = inner.value, inner.target.index
        if index != tuple(Affine.of(f.var) for f in loops):
            raise RefusedError(f"{b.name} is not copied element by element")
        if source.buffer in written_by(user):
            raise RefusedError(f"{source.buffer} changes before {b.name} is read")

        def straight(a: Access) -> Access:
            if a.buffer != b.name:
                return a
            values = {f.var: i for f, i in zip(loops, a.index, strict=True)}
            return Access(source.buffer, tuple(i.at(values) for i in source.index))

        return replace(program, body=exchanged(program.body, home, with_accesses(user, straight)))
