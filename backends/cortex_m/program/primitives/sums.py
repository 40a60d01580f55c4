"""Primitives on how values are computed: postpone, begin, part, unfold."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import loops_of, stands_in, under
from tosaic.backends.cortex_m.program.holding import holds
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.ops import LOOKUP
from tosaic.backends.cortex_m.program.primitives.buffers import whole_registers
from tosaic.backends.cortex_m.program.primitives.dims import not_held
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import accesses, at, exchanged, mapped, nested, parts_of, seq, with_part
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import own_buffers, without_unread, written_by
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    INTEGERS,
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Op,
    Reduce,
    RefusedError,
    Seq,
    Statement,
    Value,
)


@PRIMITIVES.register
class Postpone(Primitive):
    """`postpone(S)`: sums begin with 0, and the constant that they began with is added where they are read."""

    name = "postpone"
    takes = ("computed",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b = program.buffer(str(arguments[0]))
        not_held(program.body, b.name)
        if b.memory != "scratch" or b.dtype != "i32":
            raise RefusedError(f"{b.name} of {b.dtype} in {b.memory} holds no sums")
        begun = [s for s in program.statements if isinstance(s, Assign) and s.target.buffer == b.name]
        if len(begun) != 1 or not isinstance(begun[0].value, Access):
            raise RefusedError(f"{b.name} does not begin with a constant")
        (first,) = begun
        constant, variables = first.value, [i.terms[0][0] if i.terms else "" for i in first.target.index]
        assert isinstance(constant, Access)
        counted = set().union(*(i.names for i in constant.index))
        if any(i != Affine.of(v) for i, v in zip(first.target.index, variables, strict=True)) or counted - {*variables}:
            raise RefusedError(f"{b.name} does not begin element by element")
        if program.buffers[constant.buffer].memory != "const":
            raise RefusedError(f"{constant.buffer} is no constant")

        def late(v: Value) -> Value:
            if isinstance(v, Op):
                return Op(v.name, tuple(map(late, v.args)))
            if not isinstance(v, Access) or v.buffer != b.name:
                return v
            where = dict(zip(variables, v.index, strict=True))
            return Op("add", (v, Access(constant.buffer, tuple(i.at(where) for i in constant.index))))

        def one(s: Statement) -> Statement:
            if s is first:
                return Assign(first.target, 0)
            return type(s)(s.target, late(s.value)) if isinstance(s, Assign | Reduce) else s

        if any(b.name in {a.buffer for a in accesses(s.value)} for s in program.statements if isinstance(s, Reduce)):
            raise RefusedError(f"what is added reads {b.name}")
        return replace(program, body=mapped(program.body, one))


@PRIMITIVES.register
class Begin(Primitive):
    """`begin(S)`: sums of which a constant is taken where they are read begin with that constant less, `begun`."""

    name = "begin"
    takes = ("own",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b = program.buffer(str(arguments[0]))
        not_held(program.body, b.name)
        fresh(program, "begun")
        begun = [s for s in program.statements if isinstance(s, Assign) and s.target.buffer == b.name]
        if b.memory != "scratch" or b.dtype != "i32" or [s.value for s in begun] != [0]:
            raise RefusedError(f"{b.name} holds no sums that begin with 0")
        reads = [
            s for s in program.statements if isinstance(s, Assign) and b.name in {a.buffer for a in accesses(s.value)}
        ]
        taken = {v for s in reads for v in parts_of(s.value) if isinstance(v, Op) and _takes(v, b.name)}
        offsets = {v.args[1] for v in taken}
        if len(offsets) != 1 or len(reads) != 1 or len(taken) != 1:
            raise RefusedError(f"no constant alone is taken from {b.name}")
        (offset,) = offsets
        constant = program.buffers[offset.buffer] if isinstance(offset, Access) else None
        if constant is None or constant.memory != "const" or constant.shape:
            raise RefusedError(f"what is taken from {b.name} is no constant")

        def one(s: Statement) -> Statement:
            if not isinstance(s, Assign) or s not in (begun[0], reads[0]):
                return s
            if s is begun[0]:
                return Assign(s.target, Access("begun"))
            value = s.value
            for v in taken:
                value = with_part(value, v, v.args[0])
            return Assign(s.target, value)

        body = mapped(program.body, one)
        derived = Derive("begun", "negative", (constant.name,), (constant.shape,))
        buffers = (*program.arguments, replace(constant, name="begun"))
        return without_unread(Program(buffers, body, (*program.host, derived)))


def _takes(v: Op, name: str) -> bool:
    """Whether something is taken from an element of a buffer."""
    return v.name == "sub" and isinstance(v.args[0], Access) and v.args[0].buffer == name


_HELD = {"sat8": "i8", "low": "i8", "eq": "i8", "gt": "i8", "ge": "i8", "sat16": "i16", "low_half": "i16"}
_WIDEST = {"max": 0, "min": 0, "at_least": 0, "at_most": 0, "select": 1}
"""Operations that give one of their arguments from this one on."""


def held(value: Value, program: Program) -> str:
    """The narrowest type that is known to hold a value."""
    match value:
        case int():
            return next(dtype for dtype in INTEGERS if max(value, ~value).bit_length() < 8 * BYTES[dtype])
        case Access():
            return program.buffers[value.buffer].dtype
        case Op("lookup", (table, _)):
            return held(table, program)
        case Op(name) if name in _HELD:
            return _HELD[name]
    args = [held(arg, program) for arg in value.args]
    if "f32" in args:
        return "f32"
    return max(args[_WIDEST[value.name] :], key=BYTES.__getitem__) if value.name in _WIDEST else "i32"


@PRIMITIVES.register
class Part(Primitive):
    """`part(out, sat16, n, E, scratch, i16)`: the part of what `out` is assigned that begins with `sat16` is computed
    first, for all of an iteration of loop `n`, into `E`. What is computed of it comes last in the iteration, where it
    can."""

    name = "part"
    takes = ("buffer", "op", "loop", "name", "memory", "dtype")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        target, op, var, new, memory, dtype = map(str, arguments)
        program.buffer(target)
        loop = program.loop(var)
        found = [
            (s, around)
            for s, around in under(loop.body, name=target)
            if isinstance(s, Assign) and s.target.buffer == target
        ]
        if len(found) != 1 or any(isinstance(s, If) for s in found[0][1]):
            raise RefusedError(f"an iteration of `{var}` does not assign {target} once")
        statement, loops = found[0][0], loops_of(found[0][1])
        parts = [v for v in parts_of(statement.value) if isinstance(v, Op) and v.name == op]
        if not parts or (parts[0] is statement.value and len(parts) > 2):
            raise RefusedError(f"no one `{op}` makes {target}")
        value = next((v for v in parts if v is not statement.value), parts[0])
        if not holds(dtype, held(value, program)) or memory not in ("scratch", *REGISTERS):
            raise RefusedError(f"`{dtype}` in `{memory}` does not hold a `{op}`")
        around = self._around(loop.body, statement, {a.buffer for a in accesses(value)})
        if around is None:
            raise RefusedError(f"what `{op}` takes is made in an iteration of `{var}`")
        counted = [f for f in loops if any(i[f.var] for a in accesses(value) for i in a.index)]
        if any(plain(f).step != 1 for f in counted):
            raise RefusedError(f"a loop in `{var}` goes in steps")
        names = {f.var: f"{new}{i}" for i, f in enumerate(counted)}
        fresh(program, new, *names.values())
        buffer = Buffer(new, dtype, tuple(f.extent for f in counted), memory)
        whole_registers(buffer)
        index = tuple(Affine.of(f.var) for f in counted)
        made = at(Assign(Access(new, index), value), {old: Affine.of(name) for old, name in names.items()})
        copies = nested(made, **{names[f.var]: f.extent for f in counted})
        used = Assign(statement.target, with_part(statement.value, value, Access(new, index)))
        last, rest = self._last(loop.body, around), exchanged(around, statement, used)
        if {a.buffer for a in accesses(used.value)} & (own_buffers(last) | written_by(last)):
            last = around
        body = Alloc(buffer, seq(exchanged(last, around, copies), rest))
        return with_loop(program, loop, replace(loop, body=exchanged(loop.body, last, body)))

    def _around(self, iteration: Statement, statement: Statement, read: set[str]) -> Statement | None:
        """The largest part of an iteration that holds a statement, and makes nothing of what is read; None where there
        is none that runs once an iteration."""
        while read & (own_buffers(iteration) | written_by(iteration)):
            match iteration:
                case Alloc():
                    iteration = iteration.body
                case Seq():
                    iteration = next(part for part in iteration.body if stands_in(statement, part))
                case _:
                    return None
        return iteration

    def _last(self, iteration: Statement, around: Statement) -> Statement:
        """The largest part of an iteration that `around` is the last statement of."""
        found = iteration
        while isinstance(iteration, Alloc | Seq) and iteration is not around:
            inner = (
                iteration.body
                if isinstance(iteration, Alloc)
                else next(p for p in iteration.body if stands_in(around, p))
            )
            if isinstance(iteration, Seq) and inner is not iteration.body[-1]:
                found = inner
            iteration = inner
        return found


@PRIMITIVES.register
class Unfold(Primitive):
    """`unfold(ni, v, q)`: what the iterations of loop `ni`, four at most, assign is computed operation by operation in
    registers `v0`, `v1` ...; what an iteration alone reads is brought there first."""

    name = "unfold"
    takes = ("assigning", "name", "vectors")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, name, memory = plain(program.loop(str(arguments[0]))), str(arguments[1]), str(arguments[2])
        body = loop.body
        lanes = REGISTERS.get(memory, 0) // BYTES["i32"]
        if not isinstance(body, Assign) or lanes < 2 or loop.extent > lanes or loop.step != 1:
            raise RefusedError(f"`{loop.var}` does not assign the lanes of a register `{memory}`")
        if body.target.buffer in {a.buffer for a in accesses(body.value)}:
            raise RefusedError(f"`{loop.var}` reads what it writes")
        made, vectors = list[tuple[str, Value]](), list[Buffer]()
        dtype = "f32" if program.buffers[body.target.buffer].dtype == "f32" else "i32"

        def vector(v: Value) -> Access:
            """The register of an operation, which is that of the first one that it takes."""
            args = v.args if isinstance(v, Op) else ()
            taken = [a for a in args if isinstance(a, Access) and any(a.buffer == b.name for b in vectors)]
            if isinstance(v, Op) and v.name == LOOKUP:
                taken = []
            if not taken:
                vectors.append(Buffer(f"{name}{len(vectors)}", dtype, (lanes,), memory))
                taken = [Access(vectors[-1].name, (Affine.of(loop.var),))]
            fresh(program, taken[0].buffer, f"{name}l{len(made)}")
            made.append((taken[0].buffer, v))
            return taken[0]

        def visit(v: Value) -> Value:
            if isinstance(v, Op):
                if v.name == LOOKUP:
                    return vector(Op(v.name, (v.args[0], visit(v.args[1]))))
                return vector(Op(v.name, tuple(map(visit, v.args))))
            if not isinstance(v, Access) or not any(i[loop.var] for i in v.index):
                return v
            b = program.buffers[v.buffer]
            return v if (b.memory, b.dtype) == (memory, dtype) else vector(v)

        out, value = program.buffers[body.target.buffer], body.value
        if out.memory == memory and isinstance(value, Op):
            last: Value = Op(value.name, tuple(map(visit, value.args)))
        else:
            last = visit(value)
        if not made:
            raise RefusedError(f"`{loop.var}` assigns one operation already")
        parts: list[Statement] = []
        for number, (target, v) in enumerate(made):
            var = Affine.of(f"{name}l{number}")
            step = at(Assign(Access(target, (Affine.of(loop.var),)), v), {loop.var: var})
            parts.append(For(f"{name}l{number}", loop.extent, step))
        found: Statement = seq(*parts, replace(loop, body=Assign(body.target, last)))
        for b in reversed(vectors):
            found = Alloc(b, found)
        return with_loop(program, loop, found)
