"""Primitives on constants that the host lays out: pack, apart, pad, skew."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import stands_in, under
from tosaic.backends.cortex_m.program.host import Derive, Pack
from tosaic.backends.cortex_m.program.interpret import packed
from tosaic.backends.cortex_m.program.legal import any_iteration, last_values, uses
from tosaic.backends.cortex_m.program.primitives.dims import dimension, not_held, not_indexed, relaid
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.touches import own_buffers, own_touches, tables_of, touches
from tosaic.backends.cortex_m.program.tree import Access, Buffer, For, If, Let, Op, Reduce, RefusedError


def repacked(program: Program, b: Buffer, shape: tuple[int, ...], where: tuple[Affine, ...]) -> Program:
    """The program with one more step of the host: `b` gets a shape; element `v0, v1 ...` was element `where`."""
    return replace(program, host=(*program.host, Pack(b.name, b.name, b.shape, shape, where)))


@PRIMITIVES.register
class PackConstant(Primitive):
    """`pack(w)`: the host lays a constant out in the order of the loops that read it."""

    name = "pack"
    takes = ("constant",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b = program.buffer(str(arguments[0]))
        found = uses_of(program, b.name)
        if b.memory != "const" or len(found) != 1:
            raise RefusedError(f"{b.name} is no constant that one statement reads")
        not_indexed(program.body, b.name)
        ((access, loops),) = found
        used = [f for f in loops if any(i[f.var] for i in access.index)]
        if any(f.step != 1 for f in used):
            raise RefusedError(f"iterations of a loop overlap in {b.name}")
        names = {f.var: Affine.of(f"v{i}") for i, f in enumerate(used)}
        shape, where = tuple(f.extent for f in used), tuple(i.at(names) for i in access.index)
        laid = replace(b, shape=shape)
        if laid.size == b.size and b.address(where) == laid.address(
            tuple(Affine.of(f"v{i}") for i in range(len(shape)))
        ):
            raise RefusedError(f"{b.name} lies in that order")
        moved = relaid(program, b.name, shape, lambda i, _: tuple(Affine.of(f.var) for f in used))
        return repacked(moved, b, shape, where)


@PRIMITIVES.register
class Apart(Primitive):
    """`apart(bias, bias_t, n_t)`: what loop `n_t` reads of a constant is a constant of its own, a copy as yet."""

    name = "apart"
    takes = ("constant", "name", "loop")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, new, loop = program.buffer(str(arguments[0])), str(arguments[1]), program.loop(str(arguments[2]))
        fresh(program, new)
        read_by_loops(program, b)
        inside = sum(access.buffer == b.name for _, access in touches(loop.body))
        if inside in (0, len(uses_of(program, b.name))):
            raise RefusedError(f"`{loop.var}` reads all, or nothing, of {b.name}")
        not_held(loop.body, b.name)
        changed = with_accesses(loop, lambda a: Access(new, a.index) if a.buffer == b.name else a)
        found = with_loop(program, loop, changed)
        where = tuple(Affine.of(f"v{i}") for i in range(len(b.shape)))
        copy = Pack(new, b.name, b.shape, b.shape, where)
        return replace(found, arguments=(*found.arguments, replace(b, name=new)), host=(*found.host, copy))


def read_by_loops(program: Program, b: Buffer) -> None:
    """Guard: a constant that loops read, and no operation as a whole.

    Raises:
        RefusedError: it is none.
    """
    if b.memory != "const" or b.name in tables_of(program.body):
        raise RefusedError(f"{b.name} is no constant that loops read")


def uses_of(program: Program, name: str) -> list[tuple[Access, tuple[For, ...]]]:
    """The accesses of a buffer, each with the loops around it, those over all numbers that a `Let` may give, too."""
    return [
        (access, tuple(any_iteration(f) if isinstance(f, Let) else f for f in outside if not isinstance(f, If)))
        for s, outside in under(program.body, name=name)
        for _, access in own_touches(s)
        if access.buffer == name
    ]


@PRIMITIVES.register
class Pad(Primitive):
    """`pad(k, 4)`: a loop that adds products gets as many iterations as 4 divides.

    The host fills its constant factor, whose end the loop reaches, with zeros, or has; the other one, in scratch memory
    or in lanes of registers, holds anything there.
    """

    name = "pad"
    takes = ("sums", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, multiple = plain(program.loop(str(arguments[0]))), int(arguments[1])
        extent = -(-loop.extent // multiple) * multiple if multiple > 0 else 0
        if loop.step != 1 or not loop.extent < extent <= 2 * loop.extent + 16:
            raise RefusedError(f"`{loop.var}` of {loop.extent} is not padded to a multiple of {multiple}")
        for use in uses(loop):
            if use.how != "read" and use.access.index and any(i[loop.var] for i in use.access.index):
                raise RefusedError(f"`{loop.var}` counts what is written")
            if program.buffers[use.access.buffer].dtype == "f32":
                raise RefusedError("a product of 0 and a float is perhaps no number")
        adds = [s for s in walk(loop.body) if not isinstance(s, For)]
        if not all(isinstance(s, Reduce) and isinstance(s.value, Op) and s.value.name == "mul" for s in adds):
            raise RefusedError(f"`{loop.var}` does more than add products")
        if not all(any(self._zeros(program, a, loop) for a in s.value.args) for s in adds):  # type: ignore[union-attr]
            raise RefusedError(f"no constant that `{loop.var}` alone counts along a dimension makes its products 0")
        found = program
        for name in dict.fromkeys(use.access.buffer for use in uses(loop) if use.how == "read"):
            found = self._longer(found, found.buffer(name), loop, extent)
        return with_loop(found, found.loop(loop.var), replace(found.loop(loop.var), extent=extent))

    def _zeros(self, program: Program, value: object, loop: For) -> bool:
        if not isinstance(value, Access) or program.buffers[value.buffer].memory != "const":
            return False
        return any((i - loop.var).terms == () for i in value.index)

    def _longer(self, program: Program, b: Buffer, loop: For, extent: int) -> Program:
        found = uses_of(program, b.name)
        dims = {dim for access, _ in found for dim, i in enumerate(access.index) if i[loop.var]}
        if not dims:
            return program
        (dim, *more) = dims
        if more:
            raise RefusedError(f"`{loop.var}` counts two dimensions of {b.name}")
        if b.memory == "const":
            (first,) = {access.index[dim].const for access, _ in found if access.index[dim][loop.var]}
            end = first + loop.extent
            if b.shape[dim] == first + extent and not origins(program, b).take(range(end, first + extent), dim).any():
                return program
            if b.shape[dim] != end:
                raise RefusedError(f"`{loop.var}` does not reach the end of a dimension of {b.name}")
            return lengthened(program, b, dim, first + extent)
        ends = [
            access.index[dim].bounds(last_values(program, loops) | {loop.var: extent - 1})[1]
            for access, loops in found
            if access.index[dim][loop.var]
        ]
        if b.in_registers and max(ends) < b.shape[dim]:
            return program
        return lengthened(program, b, dim, max(*ends, b.shape[dim] - 1) + 1)


def origins(program: Program, b: Buffer) -> np.ndarray:
    """Where the host takes each element of a constant from, as numbers from 1 on; 0 for those that are 0."""
    packs, name = list[Pack](), b.name
    for step in reversed(program.host):
        if step.name == name:
            if isinstance(step, Derive):
                break
            packs.append(step)
            name = step.source
    shape = packs[-1].was if packs else b.shape
    found = np.arange(1, math.prod(shape) + 1).reshape(shape)
    for pack in reversed(packs):
        found = packed(pack, found)
    return found.reshape(b.shape)


def lengthened(program: Program, b: Buffer, dim: int, extent: int) -> Program:
    """The program with a longer dimension of scratch memory, or of a constant, which has zeros there.

    Raises:
        RefusedError: the buffer is another's.
    """
    if b.memory not in ("scratch", "const"):
        raise RefusedError(f"{b.name} ends where it ends")
    shape = (*b.shape[:dim], extent, *b.shape[dim + 1 :])
    longer = relaid(program, b.name, shape, lambda i, _: i)
    if b.memory == "scratch":
        return longer
    return repacked(longer, b, shape, tuple(Affine.of(f"v{i}") for i in range(len(shape))))


@PRIMITIVES.register
class Lengthen(Primitive):
    """`lengthen(P, 1, 28)`: a dimension of scratch memory, or of a constant, gets 28 elements, so that what lies behind
    it is aligned."""

    name = "lengthen"
    takes = ("inner", "dim", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, dim, extent = program.buffer(str(arguments[0])), int(arguments[1]), int(arguments[2])
        if not b.shape[dimension(b, dim)] < extent <= 2 * b.shape[dim] + 16:
            raise RefusedError(f"{b.name}{list(b.shape)} is not lengthened to {extent}")
        return lengthened(program, b, dim, extent)


@PRIMITIVES.register
class Skew(Primitive):
    """`skew(xi, kx, t)`: a window that each iteration of `xi` reads further on becomes one window `t` that all
    iterations read.

    Its constant factor is laid out anew for each iteration of `xi`, with zeros where that iteration's window does not
    reach: `sum over kx of a[s * xi + kx] * w[kx]` is `sum over t of a[t] * w[t - s * xi]`.
    """

    name = "skew"
    takes = ("plain", "sum", "name")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        outer, inner, new = map(str, arguments)
        first, second = plain(program.loop(outer)), plain(program.loop(inner))
        fresh(program, new)
        if not stands_in(second, first.body) or not isinstance(second.body, Reduce):
            raise RefusedError(f"`{inner}` does not add up inside of `{outer}`")
        if (first.step, second.step) != (1, 1) or own_buffers(first.body):
            raise RefusedError(f"`{outer}` or `{inner}` is no plain window")
        value = second.body.value
        if not isinstance(value, Op) or value.name != "mul" or not all(isinstance(a, Access) for a in value.args):
            raise RefusedError(f"`{inner}` does more than add products")
        by_memory = {program.buffers[a.buffer].memory == "const": a for a in value.args if isinstance(a, Access)}
        if len(by_memory) != 2 or any(i[inner] for i in second.body.target.index):
            raise RefusedError("a product of a constant and a tensor is wanted")
        factor, read = by_memory[True], by_memory[False]
        dims = [d for d, i in enumerate(read.index) if i[inner] or i[outer]]
        if len(dims) != 1 or read.index[dims[0]][inner] < 1 or read.index[dims[0]][outer] % read.index[dims[0]][inner]:
            raise RefusedError(f"{read} is no window of `{outer}` and `{inner}` along one dimension")
        stride = read.index[dims[0]][outer] // read.index[dims[0]][inner]
        if program.buffers[factor.buffer].dtype == "f32":
            raise RefusedError("a product of 0 and a float is perhaps no number")
        (dim,) = [d for d, i in enumerate(factor.index) if i == Affine.of(inner)] or [-1]
        if dim < 0 or stride < 1 or any(i[outer] for i in factor.index) or len(uses_of(program, factor.buffer)) != 1:
            raise RefusedError(f"`{inner}` does not count one dimension of {factor.buffer} alone")
        b, extent = program.buffers[factor.buffer], stride * (first.extent - 1) + second.extent
        if b.shape[dim] != second.extent:
            raise RefusedError(f"`{inner}` does not count all of dimension {dim} of {b.name}{list(b.shape)}")
        shape = (first.extent, *b.shape[:dim], extent, *b.shape[dim + 1 :])
        where = [Affine.of(f"v{i + 1}") for i in range(len(b.shape))]
        where[dim] = where[dim] - Affine.of("v0") * stride
        found = relaid(program, b.name, shape, lambda i, _: (Affine.of(outer), *i[:dim], Affine.of(new), *i[dim + 1 :]))
        found = repacked(found, b, shape, tuple(where))
        loop = found.loop(inner)
        assert isinstance(loop.body, Reduce)
        moved = tuple(i.at({inner: Affine.of(new), outer: 0}) for i in read.index)
        changed = Access(read.buffer, moved)
        args = tuple(changed if a == read else a for a in loop.body.value.args)  # type: ignore[union-attr]
        body = Reduce(loop.body.target, Op("mul", args))
        return with_loop(found, loop, For(new, extent, body))
