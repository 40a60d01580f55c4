"""A primitive on how products are made: nibbles."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.primitives.carry import begun_of, factors_of, shifted_of
from tosaic.backends.cortex_m.program.primitives.constants import lengthened
from tosaic.backends.cortex_m.program.primitives.loops import plain
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import exchanged, nested, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Op,
    Reduce,
    RefusedError,
    Statement,
)


@PRIMITIVES.register
class Nibbles(Primitive):
    """`nibbles(k, 64, 16)`: weights of four bits, two in a byte, with a factor for each 64 of them along loop `k`.

    Of 16 bytes, the lower halves hold the first 16 weights, and the upper ones the next. `N` and `V` hold these bytes,
    and the weights times 16; `G` is the sum of a group. The sums are 16 times as large, and so is the bias; the RESCALE
    shifts by four more. The host checks that the weights are such. `nibbles(k, 64, 16, m)`: the number -16, which the
    upper halves take, is a constant `m`.
    """

    name = "nibbles"
    takes = ("sum", "number", "number", "name")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, group, lanes = plain(program.loop(str(arguments[0]))), int(arguments[1]), int(arguments[2])
        k, add = loop.var, loop.body
        names = (f"{k}{part}" for part in ("h", "j", "l", "n", "v"))
        chunk, half, lane, copied, widened = names
        mask = str(arguments[3]) if len(arguments) > 3 else ""
        fresh(program, *([mask] if mask else []), "factors", "N", "V", "G", chunk, half, lane, copied, widened)
        if not isinstance(add, Reduce) or loop.step != 1:
            raise RefusedError(f"`{k}` does not add up products")
        if lanes < 1 or group < 1 or group % (2 * lanes):
            raise RefusedError(f"a group of {group} weights is no whole number of {lanes} bytes")
        weights, left = factors_of(program, add, loop)
        bias, shift = begun_of(program, add), shifted_of(program, add)
        groups = -(-loop.extent // group)
        p = program.buffers[left.buffer]
        if groups * group > loop.extent and p.memory != "scratch":
            raise RefusedError(f"{p.name} ends within a group")
        if groups * group > loop.extent:
            program = lengthened(program, p, len(p.shape) - 1, groups * group)
            loop = program.loop(k)
        sums = self._sums(add.target, weights, left, loop, (group, lanes, mask))
        body = exchanged(program.body, loop, replace(loop, extent=groups, body=sums))
        return self._with_constants(program, body, weights.buffer, (bias, shift), (groups, group, lanes, mask))

    def _sums(
        self, total: Access, weights: Access, left: Access, loop: For, numbers: tuple[int, int, str]
    ) -> Statement:
        """What an iteration does for a group of weights: unpack some, add up their products, add that to the sum."""
        k, (group, lanes, mask) = loop.var, numbers
        chunk, half, lane, copied, widened = (f"{k}{part}" for part in ("h", "j", "l", "n", "v"))
        chunks = group // (2 * lanes)
        at = Affine.of(k) * chunks + (Affine.of(chunk) if chunks > 1 else 0)
        packed = Access(weights.buffer, (*weights.index[:-1], at, Affine.of(copied)))
        byte = Access("N", (Affine.of(widened),))
        low, high = Op("low", (Op("mul", (byte, 16)),)), Op("bit_and", (byte, Access(mask) if mask else -16))
        both = (Assign(Access("V", (Affine.of(i), Affine.of(widened))), v) for i, v in enumerate((low, high)))
        read = Access(left.buffer, (*left.index[:-1], at * (2 * lanes) + Affine.of(half) * lanes + lane))
        product = Op("mul", (read, Access("V", (Affine.of(half), Affine.of(lane)))))
        added = nested(Reduce(Access("G"), product), **{half: 2, lane: lanes})
        unpacked = Alloc(
            Buffer("N", "i8", (lanes,), "scratch"),
            seq(
                nested(Assign(Access("N", (Affine.of(copied),)), packed), **{copied: lanes}),
                Alloc(
                    Buffer("V", "i8", (2, lanes), "scratch"),
                    seq(nested(seq(*both), **{widened: lanes}), added),
                ),
            ),
        )
        products = nested(unpacked, **({chunk: chunks} if chunks > 1 else {}))
        scaled = Op("mul", (Access("G"), Access("factors", (*weights.index[:-1], Affine.of(k)))))
        return Alloc(Buffer("G", "i32", (), "scratch"), seq(Assign(Access("G"), 0), products, Reduce(total, scaled)))

    def _with_constants(
        self,
        program: Program,
        body: Statement,
        weights: str,
        scaled: tuple[str, str],
        numbers: tuple[int, int, int, str],
    ) -> Program:
        """The program with the constants of these sums in place of those before."""
        (groups, group, lanes, mask), (bias, shift), w = numbers, scaled, program.buffers[weights]
        b, s = program.buffers[bias], program.buffers[shift]
        packed = replace(w, shape=(*w.shape[:-1], groups * group // (2 * lanes), lanes))
        constants = [Buffer("factors", "i8", (*w.shape[:-1], groups), "const")]
        constants += [Buffer(mask, "i32", (), "const")] if mask else []
        host = (
            Derive("factors", "factors", (weights,), (w.shape,), (group,)),
            Derive(bias, "sixteen", (bias, weights), (b.shape, w.shape)),
            Derive(shift, "sixteen_shift", (shift,), (s.shape,)),
            Derive(weights, "nibbles", (weights,), (w.shape,), (group, lanes)),
            *([Derive(mask, "upper_half", (), ())] if mask else []),
        )
        arguments = tuple(packed if a.name == weights else a for a in program.arguments)
        return Program((*arguments, *constants), body, (*program.host, *host))
