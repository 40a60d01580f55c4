"""Primitives on the shape of a buffer: merge_dims, divide_dim, reorder_dims, space, widen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.holding import holds
from tosaic.backends.cortex_m.program.host import Pack
from tosaic.backends.cortex_m.program.legal import bounds_of
from tosaic.backends.cortex_m.program.program import Program, names_in
from tosaic.backends.cortex_m.program.rewriting import mapped, seq, value_with_accesses, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import held_by, tables_of
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Around,
    Buffer,
    For,
    If,
    Let,
    RefusedError,
    Seq,
    Statement,
)

_Index = tuple[Affine, ...]


def relaid(
    program: Program, name: str, shape: tuple[int, ...], index: Callable[[_Index, tuple[Around, ...]], _Index]
) -> Program:
    """A buffer with other dimensions; `index` makes the new index of an access, given what stands around it.

    Raises:
        RefusedError: instructions hold the buffer as it lies, or values say what is read of it.
    """
    not_held(program.body, name)
    not_indexed(program.body, name)
    new = replace(program.buffers[name], shape=shape)

    def moved(a: Access, around: tuple[Around, ...]) -> Access:
        return Access(name, index(a.index, around)) if a.buffer == name else a

    def visit(s: Statement, around: tuple[Around, ...]) -> Statement:
        if name not in names_in(s):
            return s
        match s:
            case For():
                return replace(s, body=visit(s.body, (*around, s)))
            case Let():
                value = value_with_accesses(s.value, lambda a: moved(a, around))
                return Let(s.var, value, s.extent, visit(s.body, (*around, s)))
            case If():
                return If(s.conditions, visit(s.then, (*around, s)), visit(s.otherwise, around))
            case Alloc():
                return Alloc(new if s.buffer.name == name else s.buffer, visit(s.body, around))
            case Seq():
                return seq(*(visit(part, around) for part in s.body))
        return with_accesses(s, lambda a: moved(a, around))

    arguments = tuple(new if b.name == name else b for b in program.arguments)
    return replace(program, arguments=arguments, body=visit(program.body, ()))


def not_held(statement: Statement, name: str) -> None:
    """Guard: a buffer that no instruction below a statement reads or writes.

    Raises:
        RefusedError: one does.
    """
    if name in held_by(statement):
        raise RefusedError(f"instructions hold {name} as it lies")


def not_indexed(statement: Statement, name: str) -> None:
    """Guard: a buffer of which no value in a statement says what is read.

    Raises:
        RefusedError: one does.
    """
    if name in tables_of(statement):
        raise RefusedError(f"values say what is read of {name}")


def dimension(buffer: Buffer, dim: int) -> int:
    """Guard: a dimension of a buffer.

    Raises:
        RefusedError: it has no such dimension.
    """
    if not 0 <= dim < len(buffer.shape):
        raise RefusedError(f"{buffer.name} has no dimension {dim}")
    return dim


@PRIMITIVES.register
class MergeDims(Primitive):
    """`merge_dims(P, 1)`: dimensions 1 and 2 become one; the elements stay where they are.

    `merge_dims(P)`: all of them become one.
    """

    name = "merge_dims"
    takes = ("inner", "dim")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, dim = program.buffer(str(arguments[0])), int(arguments[1]) if len(arguments) > 1 else 0
        if dimension(b, dim) + 1 == len(b.shape):
            raise RefusedError(f"{b.name} has no dimension behind {dim}")
        if b.in_registers:
            raise RefusedError("registers stay as they are")
        if len(arguments) == 1:
            return relaid(program, b.name, (b.size,), lambda i, _: (b.address(i),))
        width = b.shape[dim + 1]
        shape = (*b.shape[:dim], b.shape[dim] * width, *b.shape[dim + 2 :])
        return relaid(program, b.name, shape, lambda i, _: (*i[:dim], i[dim] * width + i[dim + 1], *i[dim + 2 :]))


@PRIMITIVES.register
class DivideDim(Primitive):
    """`divide_dim(P, 1, 4)`: dimension 1 becomes two, the inner one of 4; the elements stay where they are."""

    name = "divide_dim"
    takes = ("inner", "dim", "divisor")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, dim, factor = program.buffer(str(arguments[0])), int(arguments[1]), int(arguments[2])
        if not 1 < factor < b.shape[dimension(b, dim)] or b.shape[dim] % factor:
            raise RefusedError(f"{factor} does not divide dimension {dim} of {b.name}{list(b.shape)}")

        def divided(index: _Index, around: tuple[Around, ...]) -> _Index:
            i = index[dim]
            quotient = Affine(tuple((n, f // factor) for n, f in i.terms if f % factor == 0), i.const // factor)
            rest = Affine(tuple((n, f) for n, f in i.terms if f % factor), i.const % factor)
            low, high = bounds_of(rest, around)
            if low < 0 or high >= factor:
                raise RefusedError(f"{b.name} is read across its parts of {factor}: {i}")
            return (*index[:dim], quotient, rest, *index[dim + 1 :])

        shape = (*b.shape[:dim], b.shape[dim] // factor, factor, *b.shape[dim + 1 :])
        return relaid(program, b.name, shape, divided)


@PRIMITIVES.register
class ReorderDims(Primitive):
    """`reorder_dims(P, d0231)`: the dimensions of scratch memory, or of a constant, in another order."""

    name = "reorder_dims"
    takes = ("inner", "order")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, digits = program.buffer(str(arguments[0])), str(arguments[1]).removeprefix("d")
        order = [int(digit) for digit in digits] if digits.isdigit() else []
        if b.memory not in ("scratch", "const"):
            raise RefusedError(f"{b.name} lies as others want it")
        if sorted(order) != list(range(len(b.shape))):
            raise RefusedError(f"`{digits}` is no order of the dimensions of {b.name}{list(b.shape)}")
        kept = [dim for dim in order if b.shape[dim] > 1]
        if kept == sorted(kept):
            raise RefusedError(f"`{digits}` moves nothing in {b.name}{list(b.shape)}")
        shape = tuple(b.shape[dim] for dim in order)
        moved = relaid(program, b.name, shape, lambda i, _: tuple(i[dim] for dim in order))
        if b.memory == "scratch":
            return moved
        where = tuple(Affine.of(f"v{order.index(dim)}") for dim in range(len(order)))
        return replace(moved, host=(*moved.host, Pack(b.name, b.name, b.shape, shape, where)))


@PRIMITIVES.register
class SpaceOut(Primitive):
    """`space(B, 2)`: behind each element of the last dimension of scratch memory lies one that nothing uses."""

    name = "space"
    takes = ("own", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, apart = program.buffer(str(arguments[0])), int(arguments[1])
        if b.memory != "scratch" or not b.shape or not 1 < apart <= 16:
            raise RefusedError(f"{b.name}{list(b.shape)} in {b.memory} is not spaced by {apart}")
        shape = (*b.shape[:-1], b.shape[-1] * apart)
        return relaid(program, b.name, shape, lambda i, _: (*i[:-1], i[-1] * apart))


@PRIMITIVES.register
class Widen(Primitive):
    """`widen(P, i16)`: scratch memory holds its numbers in a wider type."""

    name = "widen"
    takes = ("inner", "dtype")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, dtype = program.buffer(str(arguments[0])), str(arguments[1])
        if b.memory != "scratch" or dtype == b.dtype or not holds(dtype, b.dtype):
            raise RefusedError(f"{b.name} of {b.dtype} in {b.memory} is not widened to `{dtype}`")
        found = relaid(program, b.name, b.shape, lambda i, _: i)

        def one(s: Statement) -> Statement:
            return (
                Alloc(replace(s.buffer, dtype=dtype), s.body) if isinstance(s, Alloc) and s.buffer.name == b.name else s
            )

        return replace(found, body=mapped(found.body, one))
