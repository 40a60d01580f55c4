"""What a program reads and writes where, for what memories behind caches cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

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
    """A nest for all statements that stand in the same loops, those aside that are written out.

    What `cut` made two loops of is one: the second finds in a cache what the first has read.
    """
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
    nests = list[_Nest]()
    for around, uses in found.values():
        if uses:
            walk = Walk(tuple(float(f.turns) for f in around), tuple(_together(_accesses(program, uses, around))))
            _joined(nests, _Nest(around, walk))
    return [nest.walk for nest in nests]


class _Nest(NamedTuple):
    """Loops, outermost first, and what is accessed inside."""

    loops: tuple[For, ...]
    walk: Walk


def _joined(nests: list[_Nest], new: _Nest) -> None:
    """Add a nest, to one of which it goes on with a loop where there is such a one."""
    for number, each in enumerate(nests):
        pairs = enumerate(zip(each.loops, new.loops, strict=False))
        at = next((i for i, (one, other) in pairs if one is not other), len(each.loops))
        if at < len(each.loops) and _shape(each.walk, at) == _shape(new.walk, at):
            loops = (*each.walk.loops[:at], each.walk.loops[at] + new.walk.loops[at], *each.walk.loops[at + 1 :])
            more = {access[:2]: access.accessed or 0.0 for access in new.walk.accesses}
            accesses = (a._replace(accessed=(a.accessed or 0.0) + more[a[:2]]) for a in each.walk.accesses)
            nests[number] = _Nest(each.loops, Walk(loops, tuple(accesses)))
            return
    nests.append(new)


def _shape(walk: Walk, at: int) -> tuple[object, ...]:
    """What two nests have in common that are one but for the turns of a loop: those of the others, what is accessed,
    and how constants are."""
    constants = {a.of: (*a.strides[:at], *a.strides[at + 1 :]) for a in walk.accesses if a.place == "params"}
    return {a[:2] for a in walk.accesses}, constants, walk.loops[at + 1 :]


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
