"""Primitives on constants of which a computed number says what row is read: narrowed_order, unpack."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.host import Derive, Pack
from tosaic.backends.cortex_m.program.primitives.constants import read_by_loops, uses_of
from tosaic.backends.cortex_m.program.primitives.dims import not_held
from tosaic.backends.cortex_m.program.primitives.loops import computed_number, plain, with_loop
from tosaic.backends.cortex_m.program.program import Program, names_in
from tosaic.backends.cortex_m.program.rewriting import nested, seq, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import Access, Assign, Buffer, If, Let, Op, RefusedError, Statement

_LANES = 16
"""Rows that VQMOVN brings out of order together."""


@PRIMITIVES.register
class NarrowedOrder(Primitive):
    """`narrowed_order(at, w, p)`: the rows of a constant lie in the order that VQMOVN leaves results in. A computed
    number `at` says what row is read; `p` is where that lies.
    """

    name = "narrowed_order"
    takes = ("computed_number", "constant", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        at, w, place = str(arguments[0]), program.buffer(str(arguments[1])), str(arguments[2])
        fresh(program, place)
        number = computed_number(program, at)
        if number is None:
            raise RefusedError(f"`{at}` is no number that is computed")
        read_by_loops(program, w)
        not_held(program.body, w.name)
        rows = [access.index[:1] for access, _ in uses_of(program, w.name)]
        if any(row != (Affine.of(at),) for row in rows) or w.shape[:1] != (number.extent,):
            raise RefusedError(f"`{at}` does not say what row of {w.name} is read")
        if number.extent % _LANES:
            raise RefusedError(f"{number.extent} rows are no whole number of {_LANES}")
        body = with_accesses(
            number.body, lambda a: Access(a.buffer, (Affine.of(place), *a.index[1:])) if a.buffer == w.name else a
        )
        found: Statement = Let(place, Op("narrowed", (number.value,)), number.extent, body)
        if at in names_in(body):
            found = replace(number, body=found)
        ordered = with_loop(program, number, found)
        row = Affine.sum((Affine.of(f"v{digit}"), factor) for digit, factor in enumerate((_LANES, 1, 2, 4)))
        where = (row, *(Affine.of(f"v{4 + axis}") for axis in range(len(w.shape) - 1)))
        laid = Pack(w.name, w.name, w.shape, (number.extent // _LANES, 2, 2, 4, *w.shape[1:]), where)
        return replace(ordered, host=(*program.host, laid))


@PRIMITIVES.register
class Unpack(Primitive):
    """`unpack(c, 64, 16)`: loop `c` copies rows of four bits, two numbers in a byte, with a factor for each 64.

    The bytes are those that `nibbles` has: of 16, the lower halves hold the first 16 numbers, the upper ones the next.
    The host checks that the numbers are such.
    """

    name = "unpack"
    takes = ("copy", "number", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, group, lanes = plain(program.loop(str(arguments[0]))), int(arguments[1]), int(arguments[2])
        c, chunk, lane = loop.var, f"{loop.var}h", f"{loop.var}j"
        fresh(program, "factors", chunk, lane)
        match loop.body:
            case Assign(target=target, value=Access() as read):
                w = program.buffers[read.buffer]
            case _:
                raise RefusedError(f"`{c}` does more than to copy")
        read_by_loops(program, w)
        if len(uses_of(program, w.name)) > 1 or w.dtype != "i8" or program.buffers[target.buffer].dtype != "i8":
            raise RefusedError(f"{w.name} is read elsewhere, or holds no bytes")
        if loop.step != 1 or read.index[-1] != Affine.of(c) or any(i[c] for i in read.index[:-1]):
            raise RefusedError(f"`{c}` does not go along rows of {w.name}")
        if lanes < 1 or group < 1 or group % (2 * lanes) or loop.extent % (2 * lanes):
            raise RefusedError(f"a group of {group}, or a row, is no whole number of {lanes} bytes")
        groups, chunks, whole = -(-loop.extent // group), group // (2 * lanes), loop.extent // (2 * lanes)
        at = Affine.of(c) * chunks + (Affine.of(chunk) if chunks > 1 else 0)
        byte = Access(w.name, (*read.index[:-1], at, Affine.of(lane)))
        factor = Access("factors", (*read.index[:-1], Affine.of(c)))
        low = Op("sub", (Op("bit_xor", (Op("bit_and", (byte, 15)), 8)), 8))
        unpacked = nested(
            seq(
                *(
                    Assign(
                        Access(target.buffer, tuple(i.at({c: at * (2 * lanes) + lane + first}) for i in target.index)),
                        Op("mul", (half, factor)),
                    )
                    for first, half in ((0, low), (lanes, Op("asr", (byte, 4))))
                )
            ),
            **{lane: lanes},
        )
        if whole < groups * chunks:
            unpacked = If((Affine.of(whole - 1) - at,), unpacked, seq())
        body = nested(unpacked, **{c: groups}, **({chunk: chunks} if chunks > 1 else {}))
        found = with_loop(program, loop, body)
        packed = replace(w, shape=(*w.shape[:-1], groups * chunks, lanes))
        factors = Buffer("factors", "i8", (*w.shape[:-1], groups), "const")
        host = (
            Derive("factors", "factors", (w.name,), (w.shape,), (group,)),
            Derive(w.name, "nibbles", (w.name,), (w.shape,), (group, lanes)),
        )
        kept = tuple(packed if b.name == w.name else b for b in found.arguments)
        return Program((*kept, factors), found.body, (*found.host, *host))
