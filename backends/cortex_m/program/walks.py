"""What a program reads and writes where, for what memories behind caches cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from tosaic.backends.cortex_m.footprint import ArrayAccess, Place, Walk
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.branches import share_of
from tosaic.backends.cortex_m.program.legal import windows_touched
from tosaic.backends.cortex_m.program.ops import LOOKUP
from tosaic.backends.cortex_m.program.program import Program, children
from tosaic.backends.cortex_m.program.rewriting import accesses, at, parts_of
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Assign,
    Buffer,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Op,
    Reduce,
    Seq,
    Statement,
)

_PLACES: Mapping[str, Place] = MappingProxyType(
    {"in": "input", "out": "output", "const": "params", "scratch": "scratch"}
)
_Use = tuple[Affine, tuple[For, ...]]
"""A byte that is touched, and all loops around it."""
_Shares = Mapping[str, float]
"""The share of the iterations of a loop in which a branch is executed, by the loop: of those that its conditions name,
the inner one."""


def walks(program: Program) -> list[Walk]:
    """A nest for all statements that stand in the same loops, those aside that are written out.

    What `cut` made two loops of is one: the second finds in a cache what the first has read of constants. So do inner
    loops what is read right beside, around them.
    """
    found: dict[tuple[str, ...], tuple[tuple[For, ...], _Shares, dict[_Key, list[_Use]]]] = {}
    for s, outside, shares in _executed(program.body, (), MappingProxyType({})):
        around = tuple(f for f in outside if f.kind != "unroll")
        *_, uses = found.setdefault(tuple(f.var for f in around), (around, shares, {}))
        moved = _moved(program, s, outside)
        for how, access, window in windows_touched(s):
            b = program.buffers[access.buffer]
            if not b.in_registers:
                key = _Key(_PLACES[b.memory], b.name, how != "read")
                where = b.address(access.index) + moved.get(access, 0)
                uses.setdefault(key, []).append((where * BYTES[b.dtype], (*outside, *window)))
    nests = list[_LoopNest]()
    for around, shares, uses in found.values():
        spans = {key: _span(program.buffers[key.buffer], used, around, shares) for key, used in uses.items()}
        new = _LoopNest(around, shares, [f.iterations * shares.get(f.var, 1.0) for f in around], spans)
        if not any(nest.goes_on(new) for nest in nests):
            nests.append(new)
    for outer, inner in itertools.permutations(nests, 2):
        inner.take_in(outer)
    first = {key.buffer: number for number, nest in reversed([*enumerate(nests)]) for key in nest.spans}
    found_accesses = [
        tuple(_together(nest.spans, {b for b, n in first.items() if n < number})) for number, nest in enumerate(nests)
    ]
    return [
        Walk(tuple(nest.iterations), accesses, tuple(_beside(nest, nests, found_accesses)))
        for nest, accesses in zip(nests, found_accesses, strict=True)
        if accesses
    ]


def _beside(
    nest: _LoopNest, nests: Sequence[_LoopNest], accesses: Sequence[Sequence[ArrayAccess]]
) -> Iterator[ArrayAccess]:
    """What other nests access in the loops that they share with one."""
    for other, theirs in zip(nests, accesses, strict=True):
        pairs = zip(nest.loops, other.loops, strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs))
        if other is not nest and shared:
            for access in theirs:
                inner = tuple(zip(other.iterations[shared:], access.strides[shared:], strict=True))
                yield access._replace(strides=access.strides[:shared], inner=(*access.inner, *inner))


def _executed(
    s: Statement, loops: tuple[For, ...], shares: _Shares
) -> Iterator[tuple[Assign | Reduce | Instr | Invoke | Let, tuple[For, ...], _Shares]]:
    """The statements that are no loops, with those around them; of a `Let`, what its number is computed from."""
    match s:
        case For():
            yield from _executed(s.body, (*loops, s), shares)
        case If():
            share = share_of(s.conditions, {f.var: f for f in loops})
            named = (f.var for f in reversed(loops) if f.iterations > 1 and any(c[f.var] for c in s.conditions))
            inner = next(named, "")
            for branch, part in ((s.then, share), (s.otherwise, 1 - share)):
                yield from _executed(branch, loops, {**shares, inner: shares.get(inner, 1.0) * part})
        case Let():
            yield replace(s, body=Seq(())), loops, shares
            yield from _executed(at(s.body, {s.var: _spread(s, loops)}), loops, shares)
        case Assign() | Reduce() | Instr() | Invoke():
            yield s, loops, shares
        case _:
            for child in children(s):
                yield from _executed(child, loops, shares)


def _spread(s: Let, loops: Sequence[For]) -> Affine:
    """A number that goes through all of its range as the inner of some loops iterates."""
    inner = next((f for f in reversed(loops) if f.iterations > 1), None)
    return Affine() if inner is None else Affine.of(inner.var) * max(1, s.extent // (inner.iterations * inner.step))


def _moved(program: Program, s: Statement, loops: Sequence[For]) -> dict[Access, Affine]:
    """By what is looked up where constants alone say: how far that moves on with the iterations of the loops that count
    these. It goes through all of the last dimension."""
    found = dict[Access, Affine]()
    for part in parts_of(s.value) if isinstance(s, Assign | Reduce | Let) else ():
        match part:
            case Op(name=name, args=(Access() as table, value)) if name == LOOKUP:
                read, length = list(accesses(value)), program.buffers[table.buffer].shape[-1]
                if all(program.buffers[a.buffer].memory == "const" for a in read):
                    names = {name for a in read for i in a.index for name in i.names}
                    found[table] = Affine.sum(
                        (Affine.of(f.var), length // f.iterations) for f in loops if f.var in names
                    )
    return found


class _Key(NamedTuple):
    """A buffer, where it lies, and whether it is written."""

    place: Place
    buffer: str
    writes: bool


@dataclass
class _Touched:
    """What iterations touch of a buffer: `size` bytes from byte `first` on in the first iteration, `accessed` ones in
    all."""

    first: int
    size: int
    strides: tuple[float, ...]
    accessed: float

    def cover(self, other: _Touched) -> None:
        """Touch what another one does, too."""
        end = max(self.first + self.size, other.first + other.size)
        self.first = min(self.first, other.first)
        self.size = end - self.first


@dataclass
class _LoopNest:
    """Loops, outermost first, in what share of the iterations, how many these are, and what is touched inside."""

    loops: tuple[For, ...]
    shares: _Shares
    iterations: list[float]
    spans: dict[_Key, _Touched]

    def goes_on(self, other: _LoopNest) -> bool:
        """Whether another nest, behind this one, is more iterations of one of its loops, or all in which that executes
        another branch; these are added then."""
        depth = len(self.loops)
        apart = next(
            (i for i, (one, new) in enumerate(zip(self.loops, other.loops, strict=False)) if one is not new), None
        )
        if apart is None or len(other.loops) > depth:
            return False
        more = [*other.iterations, *[1.0] * (depth - len(other.iterations))]
        open = [i for i, f in enumerate(self.loops) if i >= apart or f.var in self.shares or f.var in other.shares]
        at = next((i for i in open if more[i] != self.iterations[i]), apart)
        strides = {key: (*span.strides, *[0.0] * (depth - len(span.strides))) for key, span in other.spans.items()}
        constants = {key for key in self.spans.keys() & other.spans.keys() if key.place == "params"}
        if not constants or not _alike(more, self.iterations, at):
            return False
        if not all(_alike(strides[key], self.spans[key].strides, at) for key in constants):
            return False
        self.iterations[at] += more[at]
        for key, span in other.spans.items():
            mine = self.spans.setdefault(key, _Touched(span.first, span.size, strides[key], 0))
            mine.accessed += span.accessed
            if key in constants and mine.strides[at] == 0:
                mine.cover(span)
        return True

    def take_in(self, outer: _LoopNest) -> None:
        """Read the constants that loops around read, where all iterations read what lies right beside."""
        depth = len(outer.loops)
        if depth >= len(self.loops) or any(
            one is not other for one, other in zip(self.loops, outer.loops, strict=False)
        ):
            return
        for key in [key for key in outer.spans if key.place == "params" and key in self.spans]:
            mine, theirs = self.spans[key], outer.spans[key]
            if mine.strides == (*theirs.strides, *[0.0] * (len(self.loops) - depth)):
                mine.cover(outer.spans.pop(key))
                mine.accessed += theirs.accessed


def _alike(values: Sequence[float], others: Sequence[float], at: int) -> bool:
    """Whether numbers are the same but for one."""
    return all(one == other for i, (one, other) in enumerate(zip(values, others, strict=True)) if i != at)


def _span(b: Buffer, uses: Sequence[_Use], around: Sequence[For], shares: _Shares) -> _Touched:
    """All uses of a buffer as one, from the first byte to the last that an iteration touches."""
    strides = tuple(float(max(where[f.var] * f.step for where, _ in uses)) for f in around)
    still = {f.var: 0 for f in around}
    ends = [where.at(still).bounds({f.var: f.last for f in loops}) for where, loops in uses]
    first = min(low for low, _ in ends)
    size = max(high for _, high in ends) - first + BYTES[b.dtype]
    accessed = math.prod(shares.values()) * sum(
        BYTES[b.dtype] * math.prod(f.iterations for f in loops) for _, loops in uses
    )
    return _Touched(first, size, strides, float(accessed))


def _together(spans: Mapping[_Key, _Touched], before: Collection[str]) -> Iterator[ArrayAccess]:
    """The accesses, those of constants, which lie side by side, as one; given the buffers that are accessed before."""
    constants = [span for key, span in spans.items() if key.place == "params"]
    for key, span in spans.items():
        if key.place != "params":
            again = key.place == "scratch" and not key.writes and key.buffer in before
            yield ArrayAccess(
                key.buffer, key.place, span.size, span.strides, key.writes, accessed=span.accessed, again=again
            )
    if constants:
        strides = tuple(map(sum, zip(*(span.strides for span in constants), strict=True)))
        size, accessed = sum(span.size for span in constants), sum(span.accessed for span in constants)
        yield ArrayAccess("params", "params", size, strides, accessed=accessed)
