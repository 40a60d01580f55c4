"""Primitives on constants whose elements lie together: slide, overlay, interleave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.primitives.constants import origins, read_by_loops, repacked, uses_of
from tosaic.backends.cortex_m.program.primitives.dims import dimension, not_held, relaid
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import at, nested, seq, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import without_unread
from tosaic.backends.cortex_m.program.tree import Access, Assign, Buffer, For, RefusedError, Statement


@PRIMITIVES.register
class Slide(Primitive):
    """`slide(vw1, 4, 1)`: of a loop that copies vectors of a constant, the first iteration alone reads the constant.
    Each vector is the one before, with the elements of each group of four moved on by one, and zeros before them.
    """

    name = "slide"
    takes = ("copying", "number", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, group, by = plain(program.loop(str(arguments[0]))), int(arguments[1]), int(arguments[2])
        lanes = loop.body
        fresh(program, *(f"{loop.var}{letter}" for letter in "zgm"))
        if not isinstance(lanes, For) or not isinstance(lanes.body, Assign):
            raise RefusedError(f"`{loop.var}` does not copy vectors")
        lane, copy = lanes, lanes.body
        if not isinstance(copy.value, Access) or program.buffers[copy.value.buffer].memory != "const":
            raise RefusedError(f"`{loop.var}` does not copy a constant")
        b, index = program.buffers[copy.value.buffer], copy.value.index
        if not 0 < by < group or lane.extent % group or not copy.target.index or index[-1:] != (Affine.of(lane.var),):
            raise RefusedError(f"vectors of {b.name} have no groups of {group}")
        dims = [d for d, i in enumerate(index) if i[loop.var]]
        if len(dims) != 1 or index[dims[0]] != Affine.of(loop.var) or loop.extent != b.shape[dims[0]]:
            raise RefusedError(f"`{loop.var}` does not count a dimension of {b.name}")
        iterations = np.moveaxis(origins(program, b), dims[0], 0)
        iterations = iterations[..., : lane.extent].reshape(loop.extent, -1, group)
        if (iterations[1:, :, by:] != iterations[:-1, :, :-by]).any() or iterations[1:, :, :by].any():
            raise RefusedError(f"vectors of {b.name} are not those before, moved by {by}")
        parts: list[Statement] = [at(lanes, {loop.var: 0})]
        groups, inner = Affine.of(f"{loop.var}g") * group, Affine.of(f"{loop.var}m")
        for iteration in range(1, loop.extent):
            here, before = (copy.target.index[:-1], copy.target.index[-1] - lane.var)
            mine, last = (tuple(i.at({loop.var: n}) for i in here) for n in (iteration, iteration - 1))
            zero = Assign(Access(copy.target.buffer, (*mine, before + f"{loop.var}z")), 0)
            moved = Assign(
                Access(copy.target.buffer, (*mine, before + groups + inner + by)),
                Access(copy.target.buffer, (*last, before + groups + inner)),
            )
            parts += [
                nested(zero, **{f"{loop.var}z": lane.extent}),
                nested(moved, **{f"{loop.var}g": lane.extent // group, f"{loop.var}m": group - by}),
            ]
        return with_loop(program, loop, seq(*parts))


@PRIMITIVES.register
class Overlay(Primitive):
    """`overlay(w, 1, 4)`: the vectors that dimension 1 of a constant counts are read where they overlap, each of them 4
    elements before the one before; elements that lie together are the same. The constant gets one dimension."""

    name = "overlay"
    takes = ("constant", "dim", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, dim, step = program.buffer(str(arguments[0])), int(arguments[1]), int(arguments[2])
        last = b.shape[dimension(b, dim)] - 1
        if b.memory != "const" or not 0 < dim < len(b.shape) - 1 or step < 1 or not uses_of(program, b.name):
            raise RefusedError(f"dimension {dim} of {b.name}{list(b.shape)} counts no vectors")
        one, longer = ((n, *b.shape[1:dim], 1, *b.shape[dim + 1 :]) for n in (b.shape[0], b.shape[0] + 1))
        kept, found, places = replace(b, shape=one), origins(program, b), np.indices(b.shape)
        flat = found.take(last, dim).ravel()
        flat = np.append(flat, np.zeros(flat.size // b.shape[0], flat.dtype))
        iterations = places[dim].copy()
        places[dim] = 0
        address = np.ravel_multi_index(tuple(places), one) + (last - iterations) * step
        if address.max() >= flat.size or (flat[address] != found).any():
            raise RefusedError(f"vectors of {b.name} are not the same where they overlap by {step}")

        def moved(index: tuple[Affine, ...]) -> tuple[Affine, ...]:
            inside = (*index[:dim], Affine(), *index[dim + 1 :])
            return (kept.address(inside) + index[dim] * -step + last * step,)

        laid = relaid(program, b.name, (flat.size,), lambda i, _: moved(i))
        axes = [Affine.of(f"v{axis}") for axis in range(len(longer))]
        return repacked(laid, b, longer, (*axes[:dim], axes[dim] + last, *axes[dim + 1 :]))


@PRIMITIVES.register
class InterleaveConstants(Primitive):
    """`interleave(f, bias, whole)`: constants of one shape, up to four, become one, in which their elements lie side by
    side."""

    name = "interleave"
    takes = ("name", "constant", "alike", "alike", "alike")
    optional = 2

    def apply(self, program: Program, *arguments: Argument) -> Program:
        new, names = str(arguments[0]), [str(name) for name in arguments[1:]]
        fresh(program, new)
        buffers = [program.buffer(name) for name in names]
        for b in buffers:
            not_held(program.body, b.name)
            read_by_loops(program, b)
        if len({(b.shape, b.dtype) for b in buffers}) > 1 or len({*names}) < len(names):
            raise RefusedError(f"{', '.join(names)} are not of one shape")
        places = {name: Affine.of(number) for number, name in enumerate(names)}

        def one(a: Access) -> Access:
            return Access(new, (*a.index, places[a.buffer])) if a.buffer in places else a

        made = Buffer(new, buffers[0].dtype, (*buffers[0].shape, len(names)), "const")
        derived = Derive(new, "interleaved", tuple(names), tuple(b.shape for b in buffers))
        body = with_accesses(program.body, one)
        return without_unread(Program((*program.arguments, made), body, (*program.host, derived)))
