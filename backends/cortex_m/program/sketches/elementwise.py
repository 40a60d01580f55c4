"""Sketches of pointwise functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.around import loops_of, under
from tosaic.backends.cortex_m.program.lane_vectors import VECTOR
from tosaic.backends.cortex_m.program.pointwise_lanes import FLOATS, FURTHER, NUMBERS
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.touches import own_touches, tables_of
from tosaic.backends.cortex_m.program.tree import BYTES, LEAVES, REGISTERS, Buffer, For

_COPIED = 4
"""Vectors in an iteration of a copy."""


def unrolled(elements: int, factor: int) -> Iterator[str]:
    """`factor` elements in an iteration of loop `x`, the rest of the `elements` one by one."""
    if factor == 1:
        return
    if elements % factor:
        yield f"cut(x, {elements // factor * factor})"
    yield f"split(x, xi, {factor})"
    yield "unroll(xi)"


@dataclass(frozen=True)
class Vectors:
    """How loops go in vectors.

    Args:
        bits: of a lane.
        unroll: vectors in an iteration.
        beside: how many of them take turns.
        copied: whether tables are read from scratch memory.
        isa: the instructions.
    """

    bits: int
    unroll: int
    beside: int
    copied: bool
    isa: str

    def lanes(self, var: str) -> int:
        """Of a vector, in the loop over rows or another one."""
        return VECTOR // (32 if var[0] == "r" else self.bits)


def in_lanes(program: Program, v: Vectors) -> Iterator[str]:
    """The steps of a schedule."""
    yield from _numbers(program)
    loops = [var for var in vector_loops(program) if var != "x"]
    for var in loops:
        yield from in_vectors(var, program.loop(var).extent, v.lanes(var), 1, 1)
    yield from in_vectors("x", program.loop("x").extent, v.lanes("x"), v.unroll, v.beside)
    yield from _parts(program, v.bits)
    tables = _tables(program, v) if v.copied else {}
    for table, (b, each) in tables.items():
        yield f"stage({table}, b, {table}s, scratch)"
        yield from in_vectors(f"{table}s0", b.size, each, _COPIED, 1)
        yield from instructions(f"{table}s0", b.size // (each * _COPIED), v.isa)
    for var in (*loops, "x"):
        unroll = v.unroll if var == "x" else 1
        yield from instructions(var, program.loop(var).extent // (v.lanes(var) * unroll), v.isa)


def in_vectors(var: str, extent: int, each: int, unroll: int, beside: int) -> Iterator[str]:
    """A loop in iterations of `unroll` vectors, the rest of its vectors, and the rest of its elements."""
    inner, together = f"{var}i", each * unroll
    yield f"split({var}, {inner}, {extent})"
    rest, last = extent % together, inner
    if rest and rest < extent:
        yield f"cut({inner}, {extent - rest}, e)"
        last = f"{inner}_e"
    short = last
    if rest % each and rest > each:
        yield f"cut({last}, {rest - rest % each}, s)"
        short = f"{last}_s"
    if rest < extent:
        yield from _iterations(inner, f"{var}u", together, each * beside)
        yield f"lanes({var}, {f'{var}uv' if beside < unroll else f'{var}u'}, {each})"
    if rest >= each:
        yield f"lanes({var}, {last}, {each})"
    if rest % each:
        yield f"lanes({var}, {short}, {each})"


def _iterations(inner: str, iteration: str, together: int, beside: int) -> Iterator[str]:
    yield f"split({inner}, {iteration}, {together})"
    if beside < together:
        yield from (f"split({iteration}, {iteration}v, {beside})", f"unroll({iteration})")


def instructions(var: str, iterations: int, isa: str) -> Iterator[str]:
    """An iteration of a loop of vectors as a block of instructions."""
    yield f"select({var}, {isa})"
    if iterations:
        yield f"{'hardware_loop' if iterations > 1 else 'unroll'}({var}i)"
    yield f"block({var})"


def vector_loops(program: Program) -> list[str]:
    """The loops that hold no other one."""
    loops = [s for s, _ in under(program.body) if isinstance(s, For)]
    return [f.var for f in loops if not any(isinstance(s, For) for s, _ in under(f.body))]


def _numbers(program: Program) -> Iterator[str]:
    """What lanes have in common is brought to registers: once, or for each row."""
    tables, found, vectors = tables_of(program.body), dict[tuple[str, str], None](), {*vector_loops(program)}
    for s, around in under(program.body):
        loops = [f.var for f in loops_of(around)]
        inner = vectors & {*loops}
        if not isinstance(s, LEAVES) or not inner:
            continue
        for how, access in own_touches(s):
            b, counted = program.buffers[access.buffer], set().union(*(i.names for i in access.index))
            own = b.memory == "r" or b.name in tables or b.name == FURTHER or how != "read" or _is_own(program, b)
            if not own and not counted & inner:
                found[next((var for var in reversed(loops) if var in counted), "b"), b.name] = None
    for loop, name in found:
        b = program.buffers[name]
        yield f"stage({name}, {loop}, {name}r, r{', i32' if b.dtype != 'f32' else ''})"
        if name in (NUMBERS, FLOATS) and b.size > 1:
            yield f"unroll({name}r0)"


def _is_own(program: Program, b: Buffer) -> bool:
    """Whether a buffer holds what an iteration computes."""
    return b.memory == "scratch" and not b.shape


def _parts(program: Program, bits: int) -> Iterator[str]:
    """What lanes read in parts lies in parts."""
    each = VECTOR // bits
    for b in program.buffers.values():
        parts = 8 * BYTES[b.dtype] // bits
        if b.memory not in ("const", "scratch") or not b.shape or parts < 2 or b.name in tables_of(program.body):
            continue
        if b.shape[-1] != program.loop("x").extent or b.name in (NUMBERS, FLOATS, FURTHER):
            continue
        dim, whole = len(b.shape) - 1, -(-b.shape[-1] // each) * each
        if b.shape[-1] < whole:
            yield f"lengthen({b.name}, {dim}, {whole})"
        if whole > each:
            yield f"divide_dim({b.name}, {dim}, {each})"
            dim += 1
        yield f"divide_dim({b.name}, {dim}, {parts})"
        yield f"reorder_dims({b.name}, d{''.join(map(str, (*range(dim), dim + 1, dim)))})"


def _tables(program: Program, v: Vectors) -> dict[str, tuple[Buffer, int]]:
    """The tables as lanes read them, each with the elements of a vector."""
    found, vectors = dict[str, tuple[Buffer, int]](), {*vector_loops(program)}
    for s, around in under(program.body):
        inner = vectors & {f.var for f in loops_of(around)}
        if isinstance(s, LEAVES) and inner:
            for name in sorted(tables_of(s)):
                b = program.buffers[name]
                rolled = b.dtype == "i8" and v.bits < 32 and not any(var[0] == "r" for var in inner)
                found[f"{name}_rolled" if rolled else name] = b, REGISTERS["q"] // BYTES[b.dtype]
    return found
