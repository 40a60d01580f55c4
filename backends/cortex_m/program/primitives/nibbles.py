"""A primitive on how products are made: nibbles."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.primitives.carry import begun_of, factors_of, shifted_of
from tosaic.backends.cortex_m.program.primitives.constants import lengthened
from tosaic.backends.cortex_m.program.primitives.loops import plain
from tosaic.backends.cortex_m.program.rewriting import exchanged, nested, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Op,
    Program,
    Reduce,
    RefusedError,
    Statement,
)

HALF, PACKED = 16, 32
"""Weights of which the bytes that lie together hold one each, and those that they hold."""


@PRIMITIVES.register
class Nibbles(Primitive):
    """`nibbles(k, 64)`: weights of four bits, two in a byte, with a factor for each 64 of them along loop `k`.

    Of 16 bytes, the lower halves hold the first 16 weights, and the upper ones the next. `N` and `V` hold these bytes,
    and the weights times 16; `G` is the sum of a group. The sums are 16 times as large, and so is the bias; the RESCALE
    shifts by four more. The host checks that the weights are such.
    """

    name = "nibbles"
    takes = ("loop", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, group = plain(program.loop(str(arguments[0]))), int(arguments[1])
        k, add = loop.var, loop.body
        names = (f"{k}{part}" for part in ("h", "j", "l", "n", "v"))
        chunk, half, lane, copied, widened = names
        fresh(program, "factors", "upper_half", "N", "V", "G", chunk, half, lane, copied, widened)
        if not isinstance(add, Reduce) or loop.step != 1:
            raise RefusedError(f"`{k}` does not add up products")
        if group < PACKED or group % PACKED:
            raise RefusedError(f"groups are of a multiple of {PACKED} weights, not of {group}")
        weights, left = factors_of(program, add, loop)
        bias, shift = begun_of(program, add), shifted_of(program, add)
        groups = -(-loop.extent // group)
        p = program.buffers[left.buffer]
        if groups * group > loop.extent and p.memory != "scratch":
            raise RefusedError(f"{p.name} ends within a group")
        if groups * group > loop.extent:
            program = lengthened(program, p, len(p.shape) - 1, groups * group)
            loop = program.loop(k)
        sums = self._sums(add.target, weights, left, loop, group)
        body = exchanged(program.body, loop, replace(loop, extent=groups, body=sums))
        return self._with_constants(program, body, weights.buffer, (bias, shift), groups, group)

    def _sums(self, total: Access, weights: Access, left: Access, loop: For, group: int) -> Statement:
        """What a turn does for a group of weights: unpack 32 at a time, add up their products, add that to the sum."""
        k = loop.var
        chunk, half, lane, copied, widened = (f"{k}{part}" for part in ("h", "j", "l", "n", "v"))
        chunks = group // PACKED
        at = Affine.of(k) * chunks + (Affine.of(chunk) if chunks > 1 else 0)
        packed = Access(weights.buffer, (*weights.index[:-1], at, Affine.of(copied)))
        byte = Access("N", (Affine.of(widened),))
        low, high = Op("low", (Op("mul", (byte, 16)),)), Op("bit_and", (byte, Access("upper_half")))
        both = (Assign(Access("V", (Affine.of(i), Affine.of(widened))), v) for i, v in enumerate((low, high)))
        read = Access(left.buffer, (*left.index[:-1], at * PACKED + Affine.of(half) * HALF + lane))
        product = Op("mul", (read, Access("V", (Affine.of(half), Affine.of(lane)))))
        added = nested(Reduce(Access("G"), product), **{half: 2, lane: HALF})
        unpacked = Alloc(
            Buffer("N", "i8", (HALF,), "scratch"),
            seq(
                nested(Assign(Access("N", (Affine.of(copied),)), packed), **{copied: HALF}),
                Alloc(
                    Buffer("V", "i8", (2, HALF), "scratch"),
                    seq(nested(seq(*both), **{widened: HALF}), added),
                ),
            ),
        )
        products = nested(unpacked, **({chunk: chunks} if chunks > 1 else {}))
        scaled = Op("mul", (Access("G"), Access("factors", (*weights.index[:-1], Affine.of(k)))))
        return Alloc(Buffer("G", "i32", (), "scratch"), seq(Assign(Access("G"), 0), products, Reduce(total, scaled)))

    def _with_constants(
        self, program: Program, body: Statement, weights: str, scaled: tuple[str, str], groups: int, group: int
    ) -> Program:
        """The program with the constants of these sums in place of those before."""
        (bias, shift), w = scaled, program.buffers[weights]
        b, s = program.buffers[bias], program.buffers[shift]
        packed = replace(w, shape=(*w.shape[:-1], groups * group // PACKED, HALF))
        constants = Buffer("factors", "i8", (*w.shape[:-1], groups), "const"), Buffer("upper_half", "i32", (), "const")
        host = (
            Derive("factors", "factors", (weights,), (w.shape,), (group,)),
            Derive(bias, "sixteen", (bias, weights), (b.shape, w.shape)),
            Derive(shift, "sixteen_shift", (shift,), (s.shape,)),
            Derive(weights, "nibbles", (weights,), (w.shape,), (group,)),
            Derive("upper_half", "upper_half", (), ()),
        )
        arguments = tuple(packed if a.name == weights else a for a in program.arguments)
        return Program((*arguments, *constants), body, (*program.host, *host))
