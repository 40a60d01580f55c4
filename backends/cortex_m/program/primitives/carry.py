"""Primitives on how products are made: carry, bind."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.holding import holds
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.legal import uses
from tosaic.backends.cortex_m.program.legal_windows import window_of
from tosaic.backends.cortex_m.program.primitives.buffers import whole_registers
from tosaic.backends.cortex_m.program.primitives.constants import uses_of
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.primitives.sums import held
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import exchanged, mapped, nested, parts_of, seq, with_part
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import touches, written_by
from tosaic.backends.cortex_m.program.tree import (
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Op,
    Reduce,
    RefusedError,
    Seq,
    Statement,
)


@PRIMITIVES.register
class Carry(Primitive):
    """`carry(k, V, w16)`: a sum of products of bytes becomes one of halves, of which each holds two weights.

    A half is h = 256 * w[2k + 1] + w[2k]. Then h * a[2k + 1] + w[2k] * (256 * a[2k] + 127 - a[2k + 1]) is 256 times the
    two products, and 127 * w[2k]: the bias takes that, and the RESCALE shifts by 8 more. `V` holds the two factors of
    each pair. The host checks that no sum is too large for it.
    """

    name = "carry"
    takes = ("sum", "name", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, new, halves = plain(program.loop(str(arguments[0]))), str(arguments[1]), str(arguments[2])
        fresh(program, new, halves, "carried_bias", "carried_shift")
        add = loop.body
        if not isinstance(add, Reduce) or loop.step != 1 or loop.extent % 2:
            raise RefusedError(f"`{loop.var}` does not add up an even number of products")
        weights, left = factors_of(program, add, loop)
        w, p = program.buffers[weights.buffer], program.buffers[left.buffer]
        bias, shift = begun_of(program, add), shifted_of(program, add)
        pairs = loop.extent // 2
        names = [f"{new}{dim}" for dim in range(len(p.shape))]
        fresh(program, *names)
        k = Affine.of(loop.var)
        half = Access(halves, (*weights.index[:-1], k))
        one, both = (Access(new, (*left.index[:-1], k, Affine.of(i))) for i in (1, 0))
        sums = seq(
            Reduce(add.target, Op("mul", (one, half))), Reduce(add.target, Op("mul", (both, Op("low", (half,)))))
        )
        body = exchanged(program.body, loop, replace(loop, extent=pairs, body=sums))
        body = mapped(body, lambda s: _renamed(s, {bias: "carried_bias", shift: "carried_shift"}))
        body = self._beside(
            body, p, Buffer(new, "i16", (*p.shape[:-1], pairs, 2), "scratch"), self._pairs(p, new, names)
        )
        b, s = program.buffers[bias], program.buffers[shift]
        constants = (
            Buffer(halves, "i16", (*w.shape[:-1], pairs), "const"),
            replace(b, name="carried_bias"),
            replace(s, name="carried_shift"),
        )
        host = (
            Derive(halves, "carried", (w.name,), (w.shape,)),
            Derive("carried_bias", "carried_bias", (bias, w.name), (b.shape, w.shape)),
            Derive("carried_shift", "carried_shift", (shift,), (s.shape,)),
        )
        kept = tuple(a for a in program.arguments if a.name not in (w.name, bias, shift))
        return Program((*kept, *constants), body, (*program.host, *host))

    def _pairs(self, p: Buffer, new: str, names: list[str]) -> Statement:
        """What makes the factors of all pairs."""
        outer, k = tuple(map(Affine.of, names[:-1])), Affine.of(names[-1])
        even, odd = Access(p.name, (*outer, k * 2)), Access(p.name, (*outer, k * 2 + 1))
        both = Op("sub", (Op("add", (Op("mul", (even, 256)), 127)), odd))
        made = seq(
            Assign(Access(new, (*outer, k, Affine.of(0))), both), Assign(Access(new, (*outer, k, Affine.of(1))), odd)
        )
        return nested(made, **dict(zip(names, (*p.shape[:-1], p.shape[-1] // 2), strict=True)))

    def _beside(self, body: Statement, p: Buffer, new: Buffer, made: Statement) -> Statement:
        """The tree with a buffer made right behind what makes another one, or first, where that is an input."""
        if p.memory == "in":
            return Alloc(new, seq(made, body))
        (scope,) = [s for s in walk(body) if isinstance(s, Alloc) and s.buffer.name == p.name]
        if not isinstance(scope.body, Seq) or p.name not in written_by(scope.body.body[0]):
            raise RefusedError(f"{p.name} is not made beside what reads it")
        first, *rest = scope.body.body
        if any(p.name in written_by(s) for s in rest):
            raise RefusedError(f"{p.name} is written once more")
        return exchanged(body, scope, Alloc(p, seq(first, Alloc(new, seq(made, *rest)))))


def factors_of(program: Program, add: Reduce, loop: For) -> tuple[Access, Access]:
    """The access of the weights, and that of the bytes they are multiplied by."""
    if not isinstance(add.value, Op) or add.value.name != "mul":
        raise RefusedError(f"{add} adds no product")
    factors = [a for a in add.value.args if isinstance(a, Access)]
    by_memory = {program.buffers[a.buffer].memory: a for a in factors}
    if set(by_memory) not in ({"const", "scratch"}, {"const", "in"}):
        raise RefusedError(f"{add} multiplies no weights")
    weights = by_memory.pop("const")
    (left,) = by_memory.values()
    for a in (weights, left):
        b = program.buffers[a.buffer]
        plain_index = a.index and a.index[-1] == Affine.of(loop.var) and not any(i[loop.var] for i in a.index[:-1])
        reads = [each for how, each in touches(program.body) if each.buffer == b.name and how == "read"]
        if b.dtype != "i8" or not plain_index or b.shape[-1] != loop.extent or len(reads) > 1:
            raise RefusedError(f"`{loop.var}` does not count the last dimension of bytes in {b.name}")
    return weights, left


def begun_of(program: Program, add: Reduce) -> str:
    """The bias that the sums begin with."""
    found = [
        s.value
        for s in program.statements
        if isinstance(s, Assign) and s.target.buffer == add.target.buffer and s is not add
    ]
    (bias,) = [v.buffer for v in found if isinstance(v, Access) and program.buffers[v.buffer].memory == "const"] or [""]
    if not bias or len(found) != 1 or len(uses_of(program, bias)) != 1:
        raise RefusedError(f"{add.target.buffer} does not begin with a bias")
    return bias


def shifted_of(program: Program, add: Reduce) -> str:
    """The shift of the RESCALE that takes the sums."""
    reads = [a for s in program.statements if isinstance(s, Assign) for how, a in touches(s) if how == "read"]
    values = [part for s in program.statements if isinstance(s, Assign) for part in parts_of(s.value)]
    for value in values:
        match value:
            case Op("scale32", (Access(buffer=total), _, Access(buffer=shift))) if total == add.target.buffer:
                if sum(a.buffer == total for a in reads) == 1 and len(uses_of(program, shift)) == 1:
                    return shift
    raise RefusedError(f"no RESCALE alone takes {add.target.buffer}")


def _renamed(s: Statement, names: dict[str, str]) -> Statement:
    if not isinstance(s, Assign):
        return s
    value = s.value
    for part in parts_of(s.value):
        if isinstance(part, Access) and part.buffer in names:
            value = with_part(value, part, Access(names[part.buffer], part.index))
    return Assign(s.target, value)


@PRIMITIVES.register
class Bind(Primitive):
    """`bind(low, k, lr, r, i16)`: each `low` of one element that an iteration of loop `k` computes is computed once,
    into `lr`."""

    name = "bind"
    takes = ("op", "loop", "name", "memory", "dtype")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        op, var, new, memory, dtype = map(str, arguments)
        loop = program.loop(var)
        found = {part for s in walk(loop.body) if isinstance(s, Assign | Reduce) for part in parts_of(s.value)}
        values = [v for v in found if isinstance(v, Op) and v.name == op]
        if not values or any(len(v.args) != 1 or not isinstance(v.args[0], Access) for v in values):
            raise RefusedError(f"an iteration of `{var}` computes no `{op}` of one element")
        reads = [v.args[0] for v in values if isinstance(v.args[0], Access)]
        name = reads[0].buffer
        if any(a.buffer != name for a in reads) or memory not in ("scratch", *REGISTERS):
            raise RefusedError(f"`{op}` in `{var}` takes several buffers")
        if not all(holds(dtype, held(value, program)) for value in values):
            raise RefusedError(f"`{dtype}` does not hold a `{op}`")
        b = program.buffers[name]
        around = [u for u in uses(loop.body, name) if u.access in reads]
        windows = [window_of([(u.access.index[dim], u.loops) for u in around]) for dim in range(len(b.shape))]
        kept = [dim for dim, window in enumerate(windows) if window.extent > 1]
        buffer = Buffer(new, dtype, tuple(windows[dim].extent for dim in kept), memory)
        whole_registers(buffer)
        names = {dim: f"{new}{i}" for i, dim in enumerate(kept)}
        fresh(program, new, *names.values())
        source = Access(name, tuple(w.base + names[d] if d in names else w.base for d, w in enumerate(windows)))
        made = Assign(Access(new, tuple(Affine.of(names[d]) for d in kept)), Op(op, (source,)))
        copies = nested(made, **{names[dim]: windows[dim].extent for dim in kept})

        def one(s: Statement) -> Statement:
            if not isinstance(s, Assign | Reduce):
                return s
            value = s.value
            for v, a in zip(values, reads, strict=True):
                value = with_part(value, v, Access(new, tuple(a.index[d] - windows[d].base for d in kept)))
            return type(s)(s.target, value)

        body, scopes = loop.body, list[Alloc]()
        while isinstance(body, Alloc):
            scopes.append(body)
            body = body.body
        parts = list(body.body) if isinstance(body, Seq) else [body]
        first = next(number for number, part in enumerate(parts) if mapped(part, one) != part)
        if any(name in written_by(part) for part in parts[first:]):
            raise RefusedError(f"{name} changes in `{var}`")
        after = [mapped(part, one) for part in parts[first:]]
        changed: Statement = seq(*parts[:first], Alloc(buffer, seq(copies, *after)))
        for scope in reversed(scopes):
            changed = Alloc(scope.buffer, changed)
        return with_loop(program, loop, replace(loop, body=changed))
