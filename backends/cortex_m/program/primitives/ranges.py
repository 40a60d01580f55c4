"""Primitives on what numbers can be: narrow, uniform."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

from tosaic.backends.cortex_m.program.around import around_of, loops_of, under
from tosaic.backends.cortex_m.program.holding import holds
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.legal import bounds_of
from tosaic.backends.cortex_m.program.primitives.dims import not_held, not_indexed
from tosaic.backends.cortex_m.program.primitives.loops import with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import mapped, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import own_touches, reduced, tables_of, without_unread
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Around,
    Assign,
    Buffer,
    Instr,
    Invoke,
    Op,
    Reduce,
    RefusedError,
    Statement,
    Value,
)

Range = tuple[int, int]


def _of(dtype: str) -> Range:
    most = 1 << (8 * BYTES[dtype] - 1)
    return -most, most - 1


def _within(found: Range, most: Range) -> Range:
    return max(found[0], most[0]), min(found[1], most[1])


def range_of(program: Program, value: Value) -> Range:
    """The least and the greatest number that a value can be, as far as the tree tells."""
    match value:
        case int():
            return value, value
        case Access():
            b = program.buffers[value.buffer]
            return _within(_written(program, b), _of(b.dtype)) if b.memory == "scratch" else _of(b.dtype)
        case Op(name="add" | "sub" | "max" | "min" as name, args=(left, right)):
            (low, high), (least, most) = range_of(program, left), range_of(program, right)
            if name == "add":
                return low + least, high + most
            if name == "sub":
                return low - most, high - least
            narrowed = max if name == "max" else min
            return narrowed(low, least), narrowed(high, most)
        case Op("mul", (left, right)):
            ends = [one * other for one, other in product(range_of(program, left), range_of(program, right))]
            found = min(ends), max(ends)
            return found if _within(found, _of("i32")) == found else _of("i32")
        case Op(name="sat8" | "low"):
            return _of("i8")
        case Op(name="sat16" | "low_half"):
            return _of("i16")
    return _of("i32")


def _written(program: Program, b: Buffer) -> Range:
    """What can stand in a buffer of scratch memory: what is assigned, or reduced, and what is added up."""
    (below, above), lows, highs = _added(program, b), list[int](), list[int]()
    for s in program.statements:
        if isinstance(s, Instr | Invoke) and any(o.buffer == b.name for o in s.operands):
            return _of(b.dtype)
        if isinstance(s, Assign) and s.target.buffer == b.name:
            low, high = range_of(program, reduced(s)[1])
            lows, highs = [*lows, low], [*highs, high]
    return min(lows, default=0) + below, max(highs, default=0) + above


def _added(program: Program, b: Buffer) -> Range:
    """What may be added to an element of a buffer of scratch memory, and on the way to it."""
    below, above = 0, 0
    scope = next(s for s in program.statements if isinstance(s, Alloc) and s.buffer.name == b.name)
    for s, around in under(scope):
        if isinstance(s, Reduce) and s.target.buffer == b.name:
            low, high = range_of(program, s.value)
            times = math.prod(f.iterations for f in loops_of(around) if not any(i[f.var] for i in s.target.index))
            below, above = below + times * min(low, 0), above + times * max(high, 0)
    return below, above


_FITTING = {"i16": "half_word", "i8": "byte"}
"""The types that a constant is narrowed to, and how the host checks that it fits."""


@PRIMITIVES.register
class NarrowBuffer(Primitive):
    """`narrow(S, i16)`: scratch memory, or a constant, holds its numbers, which fit, in a narrower type.

    Of a constant, and of a difference to one, the host checks that it fits.
    """

    name = "narrow"
    takes = ("inner", "dtype")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, dtype = program.buffer(str(arguments[0])), str(arguments[1])
        if b.memory == "const" and b.dtype == "i32" and dtype in _FITTING:
            return self._constant(program, b, dtype)
        if b.memory != "scratch" or dtype == b.dtype or not holds(b.dtype, dtype):
            raise RefusedError(f"{b.name} of {b.dtype} in {b.memory} is not narrowed to `{dtype}`")
        not_held(program.body, b.name)
        (low, high), (least, most) = _written(program, b), _of(dtype)
        if low < least or high > most:
            program = self._checked(program, b, dtype)

        def one(s: Statement) -> Statement:
            if not isinstance(s, Alloc) or s.buffer.name != b.name:
                return s
            return Alloc(replace(s.buffer, dtype=dtype), s.body)

        return replace(program, body=mapped(program.body, one))

    def _constant(self, program: Program, b: Buffer, dtype: str) -> Program:
        """The program with a constant of halves, or of bytes."""
        not_indexed(program.body, b.name)
        not_held(program.body, b.name)
        arguments = tuple(replace(a, dtype=dtype) if a.name == b.name else a for a in program.arguments)
        fitting = Derive(b.name, _FITTING[dtype], (b.name,), (b.shape,))
        return replace(program, arguments=arguments, host=(*program.host, fitting))

    def _checked(self, program: Program, b: Buffer, dtype: str) -> Program:
        """The program with a constant of which the host knows that what is made with it fits."""
        written = [s for s in program.statements if isinstance(s, Assign | Reduce) and s.target.buffer == b.name]
        firsts = [s for s in written if isinstance(s, Assign)]
        match firsts:
            case [Assign(target, Op("sub", (value, Access() as constant)))] if len(written) == 1 and dtype == "i16":
                rule, bounds = "half", range_of(program, value)
                made: Value = Op("sub", (value, Op("low_half", (Access(f"{constant.buffer}_half", constant.index),))))
            case [Assign(target, Access() as constant)] if b.dtype == "i32" and dtype == "i16":
                rule, bounds = "begins", _added(program, b)
                made = Access(f"{constant.buffer}_half", constant.index)
            case _:
                raise RefusedError(f"{b.name} may hold what `{dtype}` does not")
        source, name = program.buffers[constant.buffer], f"{constant.buffer}_half"
        derived = Derive(name, rule, (source.name,), (source.shape,), bounds)
        if source.memory != "const":
            raise RefusedError(f"{b.name} may hold what `{dtype}` does not")
        if derived not in program.host:
            fresh(program, name)
        body = mapped(program.body, lambda s: Assign(target, made) if s is firsts[0] else s)
        host = program.host if derived in program.host else (*program.host, derived)
        others = (a for a in program.arguments if a.name != name)
        return without_unread(Program((*others, replace(source, name=name)), body, host))


@PRIMITIVES.register
class Uniform(Primitive):
    """`uniform(offset, x, o)`: all that loop `x` reads of a constant is one number `o`, as the host checks."""

    name = "uniform"
    takes = ("constant", "loop", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, loop, new = program.buffer(str(arguments[0])), program.loop(str(arguments[1])), str(arguments[2])
        fresh(program, new)
        not_held(loop, b.name)
        if b.memory != "const" or not b.shape or b.name in tables_of(loop):
            raise RefusedError(f"{b.name} is no constant of several numbers")
        outside = around_of(loop, program.body) or ()
        reads = list[tuple[Access, tuple[Around, ...]]]()
        for s, around in under(loop, outside):
            reads += [(access, around) for _, access in own_touches(s) if access.buffer == b.name]
        if not reads:
            raise RefusedError(f"`{loop.var}` does not read {b.name}")
        bounds = list[int]()
        for dim in range(len(b.shape)):
            ends = [bounds_of(access.index[dim], around) for access, around in reads]
            bounds += [min(low for low, _ in ends), max(high for _, high in ends)]
        derived = Derive(new, "same", (b.name,), (b.shape,), tuple(bounds))
        changed = with_loop(program, loop, with_accesses(loop, lambda a: Access(new) if a.buffer == b.name else a))
        buffers = (*program.arguments, Buffer(new, b.dtype, (), "const"))
        return without_unread(Program(buffers, changed.body, (*program.host, derived)))
