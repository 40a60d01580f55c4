"""Primitives on values: rewrite, spread."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import stands_in
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.primitives.buffers import in_whole_registers
from tosaic.backends.cortex_m.program.primitives.dims import not_indexed
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import accesses, exchanged, mapped, seq, with_accesses
from tosaic.backends.cortex_m.program.rules import RULES
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import touches, without_unread, written_by
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Let,
    Op,
    RefusedError,
    Statement,
    Value,
)


@PRIMITIVES.register
class Rewrite(Primitive):
    """`rewrite(out, high)`: an identity turns the value of a buffer into one that instructions have.

    The host makes new constants for it, and checks that they lie where the identity holds. `rewrite(out, lanes, n_t)`
    changes what loop `n_t` assigns alone.
    """

    name = "rewrite"
    takes = ("buffer", "rule", "loop")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, rule = program.buffer(str(arguments[0])), RULES.get(str(arguments[1]))
        if rule is None:
            raise RefusedError(f"there is no rule `{arguments[1]}`", hint=f"there are {', '.join(RULES)}")
        new = dict[Derive, Buffer]()

        def change(value: Value) -> Value:
            if not isinstance(value, Op):
                return value
            value = Op(value.name, tuple(map(change, value.args)))
            found = rule.change(value)
            if found is None:
                return value
            result, constants = found
            for name, sources in constants.items():
                if any(not isinstance(s, Access) or program.buffers[s.buffer].memory != "const" for s in sources):
                    raise RefusedError(f"`{rule.name}` wants constants")
                given = [s for s in sources if isinstance(s, Access)]
                if any(s.index not in ((), given[0].index) for s in given):
                    raise RefusedError(f"`{rule.name}` wants constants of one index")
                buffers = [program.buffers[s.buffer] for s in given]
                derived = Derive(name, name, tuple(b.name for b in buffers), tuple(b.shape for b in buffers))
                lone = Access(name) in accesses(result)
                new[derived] = replace(buffers[0], name=name, shape=() if lone else buffers[0].shape)
            return result

        def one(s: Statement) -> Statement:
            return replace(s, value=change(s.value)) if isinstance(s, Assign) and s.target.buffer == b.name else s

        if len(arguments) > 2:
            loop = program.loop(str(arguments[2]))
            body = exchanged(program.body, loop, mapped(loop, one))
        else:
            body = mapped(program.body, one)
        if body == program.body:
            raise RefusedError(f"`{rule.name}` finds nothing in {b.name}")
        if len({derived.name for derived in new}) < len(new):
            raise RefusedError(f"`{rule.name}` finds several constants in {b.name}")
        known = {derived for derived in new if derived in program.host and new[derived] in program.arguments}
        fresh(program, *(derived.name for derived in new if derived not in known))
        made = {derived: b for derived, b in new.items() if derived not in known}
        return without_unread(Program((*program.arguments, *made.values()), body, (*program.host, *made)))


@PRIMITIVES.register
class Spread(Primitive):
    """`spread(zl, n, ql, q, i8, ni)`: before each iteration of loop `n` a number is written to all lanes of a register.
    Loop `ni` in it, of so many iterations, reads its own lane.

    Of a buffer of several numbers, loop `ni` reads one, which stays in an iteration of `n`.
    """

    name = "spread"
    takes = ("numbers", "loop", "name", "memory", "dtype", "plain")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        name, var, new, memory, dtype, lanes = map(str, arguments)
        b, loop, inner = program.buffer(name), program.loop(var), plain(program.loop(lanes))
        fresh(program, new, f"{new}0")
        alike = dtype in BYTES and (dtype == "f32") == (b.dtype == "f32")
        if memory not in REGISTERS or not alike or name in written_by(loop.body):
            raise RefusedError(f"{name} is no number that stays in `{var}` and fills registers `{memory}`")
        buffer = in_whole_registers(Buffer(new, dtype, (inner.extent,), memory))
        if not stands_in(inner, loop.body) or inner.step != 1:
            raise RefusedError(f"`{lanes}` does not count lanes in `{var}`")
        not_indexed(inner, name)
        read = {access for _, access in touches(inner) if access.buffer == name}
        if not read:
            raise RefusedError(f"`{lanes}` does not read {name}")
        number = read.pop()
        counted = {s.var for s in walk(loop.body) if isinstance(s, For | Let)}
        if read or any(counted & affine.names for affine in number.index):
            raise RefusedError(f"`{lanes}` reads more of {name} than one number that stays in `{var}`")
        lane = Access(new, (Affine.of(lanes),))
        changed = with_accesses(inner, lambda a: lane if a == number else a)
        filled = For(f"{new}0", inner.extent, Assign(Access(new, (Affine.of(f"{new}0"),)), number))
        body = Alloc(buffer, seq(filled, exchanged(loop.body, inner, changed)))
        return with_loop(program, loop, replace(loop, body=body))
