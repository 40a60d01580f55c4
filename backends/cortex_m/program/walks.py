"""What a program reads and writes where, for what memories behind caches cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tosaic.backends.cortex_m.footprint import ArrayAccess, Place, Walk
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.rewriting import loops_of, meaning_of, touches, under
from tosaic.backends.cortex_m.program.tree import BYTES, Assign, Buffer, For, Instr, Program, Reduce

_PLACES: Mapping[str, Place] = MappingProxyType(
    {"in": "input", "out": "output", "const": "params", "scratch": "scratch"}
)
_Use = tuple[Affine, tuple[For, ...]]
"""A byte that is touched, and all loops around it."""


def walks(program: Program) -> list[Walk]:
    """A nest for all statements that stand in the same loops, those aside that are written out."""
    found: dict[tuple[str, ...], tuple[tuple[For, ...], dict[tuple[str, bool], list[_Use]]]] = {}
    for s, outside in under(program.body):
        if not isinstance(s, Assign | Reduce | Instr):
            continue
        lanes = meaning_of(s) if isinstance(s, Instr) else None
        loops = (*loops_of(outside), *([lanes] if lanes is not None else []))
        around = tuple(f for f in loops_of(outside) if f.kind != "unroll")
        _, uses = found.setdefault(tuple(f.var for f in around), (around, {}))
        for how, access in touches(s if lanes is None else lanes.body):
            b = program.buffers[access.buffer]
            if not b.in_registers:
                uses.setdefault((b.name, how != "read"), []).append((b.address(access.index) * BYTES[b.dtype], loops))
    return [
        Walk(tuple(float(f.turns) for f in around), tuple(_together(_accesses(program, uses, around))))
        for around, uses in found.values()
        if uses
    ]


def _accesses(
    program: Program, uses: Mapping[tuple[str, bool], Sequence[_Use]], around: Sequence[For]
) -> list[ArrayAccess]:
    return [_access(program.buffers[name], writes, found, around) for (name, writes), found in uses.items()]


def _access(b: Buffer, writes: bool, uses: Sequence[_Use], around: Sequence[For]) -> ArrayAccess:
    """All uses of a buffer as one, from the first byte to the last that a turn touches."""
    strides = tuple(float(max(where[f.var] * f.step for where, _ in uses)) for f in around)
    still = {f.var: 0 for f in around}
    ends = [where.at(still).bounds({f.var: f.last for f in loops}) for where, loops in uses]
    size = max(high for _, high in ends) - min(low for low, _ in ends) + BYTES[b.dtype]
    accessed = sum(BYTES[b.dtype] * math.prod(f.turns for f in loops) for _, loops in uses)
    return ArrayAccess(b.name, _PLACES[b.memory], size, strides, writes, accessed=float(accessed))


def _together(accesses: Sequence[ArrayAccess]) -> Iterator[ArrayAccess]:
    """The accesses with those of constants, which lie side by side, as one."""
    constants = [access for access in accesses if access.place == "params"]
    yield from (access for access in accesses if access.place != "params")
    if constants:
        strides = tuple(map(sum, zip(*(access.strides for access in constants), strict=True)))
        accessed = sum(access.accessed or 0.0 for access in constants)
        yield ArrayAccess("params", "params", sum(access.size for access in constants), strides, accessed=accessed)
