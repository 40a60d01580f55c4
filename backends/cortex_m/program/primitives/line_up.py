"""Primitives on sums over windows: line_up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import around_of, stands_in
from tosaic.backends.cortex_m.program.legal import bounds_of
from tosaic.backends.cortex_m.program.primitives.loops import plain, renamed, with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import accesses, at, seq, with_accesses
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import own_buffers, written_by
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Around,
    Assign,
    Buffer,
    For,
    If,
    Reduce,
    RefusedError,
    Seq,
    Statement,
)

_MOST = 1024
"""Iterations that are written out."""


@PRIMITIVES.register
class LineUp(Primitive):
    """`line_up(sx, sh, vw, va)`: the iterations of loop `sh`, and of those around it up to `sx`, are written out. They
    stand in the order of what each copies to registers of its own, `vw`, then `va`. Conditions are decided. What is
    copied there, and from there to other registers, is copied once for all iterations that read it.
    """

    name = "line_up"
    takes = ("plain", "plain", "staged", "staged")
    optional = 1

    def apply(self, program: Program, *arguments: Argument) -> Program:
        outer, inner, *names = map(str, arguments)
        first, last = plain(program.loop(outer)), plain(program.loop(inner))
        if last is not first and not stands_in(last, first.body):
            raise RefusedError(f"`{inner}` does not stand in `{outer}`")
        outside = around_of(first, program.body) or ()
        staged, adds = _staged(last)
        registers = {each.buffer.name for each in staged}
        if unknown := [name for name in names if name not in registers]:
            raise RefusedError(f"an iteration of `{inner}` does not begin with a copy to registers {unknown[0]}")
        _only_adds(last, adds, registers | {each.source.buffer for each in staged})
        iterations = [(values, position) for values in _values(first, last, outside, {}) for position in last.positions]
        if len(iterations) > _MOST:
            raise RefusedError(f"{len(iterations)} iterations of `{inner}` are not written out")
        points = [{**values, last.var: position} for values, position in iterations]
        order = [next(each for each in staged if each.buffer.name == name) for name in names]

        def place(point: Mapping[str, int]) -> tuple[int, ...]:
            return tuple(each.place(program, point) for each in order)

        points.sort(key=place)
        visits = sorted(itertools.product(range(len(points)), adds), key=lambda each: (place(points[each[0]]), each[1]))
        parts, made = list[Statement](), {each.buffer.name: dict[tuple[int, int], int]() for each in staged}
        moved = [dict[str, int]() for _ in points]
        for number, copies in visits:
            point, own = points[number], moved[number]
            for each in staged[len(own) : copies]:
                known = made[each.buffer.name]
                source = own.get(each.source.buffer, -1 if each.buffer.name in names else number)
                key = source, each.place(program, point)
                own[each.buffer.name] = known.get(key, len(known))
                if key not in known:
                    known[key] = len(known)
                    parts.append(self._iteration(program, each.copy, point, own, f"_{number}"))
            parts.append(self._iteration(program, adds[copies], point, own, f"_{number}"))
        lined = seq(*parts)
        for b in reversed([each.buffer for each in staged if points]):
            lined = Alloc(replace(b, shape=(len(made[b.name]), *b.shape)), lined)
        return with_loop(program, first, lined)

    def _iteration(
        self, program: Program, s: Statement, point: Mapping[str, int], moved: Mapping[str, int], suffix: str
    ) -> Statement:
        """A statement at values of loops, with names of its own; registers get a first index."""

        def one(a: Access) -> Access:
            return Access(a.buffer, (Affine.of(moved[a.buffer]), *a.index)) if a.buffer in moved else a

        return renamed(program, with_accesses(at(s, point), one), suffix)


@dataclass(frozen=True)
class _Copied:
    """Registers of an iteration, and the copy that fills them."""

    buffer: Buffer
    copy: Statement
    source: Access

    def place(self, program: Program, point: Mapping[str, int]) -> int:
        """Where what an iteration copies lies in its buffer, beside that of others."""
        return program.buffers[self.source.buffer].address(self.source.index).at(point).const


def _staged(loop: For) -> tuple[list[_Copied], dict[int, Statement]]:
    """The registers that an iteration fills by copies, and what it does in between, by the number of copies before."""
    found, adds, body = list[_Copied](), dict[int, Statement](), loop.body
    while isinstance(body, Alloc) and isinstance(body.body, Seq) and body.buffer.in_registers:
        copy, *rest = body.body.body
        sources = [s.value for s in walk(copy) if isinstance(s, Assign)]
        only = all(isinstance(s, For | Assign) for s in walk(copy))
        if (
            not only
            or len(sources) != 1
            or not isinstance(sources[0], Access)
            or written_by(copy) != {body.buffer.name}
        ):
            break
        found.append(_Copied(body.buffer, copy, sources[0]))
        *before, body = rest
        if before and isinstance(body, Alloc):
            adds[len(found)] = seq(*before)
        else:
            body = seq(*rest)
    adds[len(found)] = body
    return found, adds


def _only_adds(loop: For, adds: Mapping[int, Statement], staged: set[str]) -> None:
    """Guard: beside copies an iteration adds to sums, which it does not read, and does nothing else.

    Raises:
        RefusedError: it does more.
    """
    leaves = [s for each in adds.values() for s in walk(each) if not isinstance(s, For | Seq)]
    sums = {s.target.buffer for s in leaves if isinstance(s, Reduce)}
    read = {access.buffer for s in leaves if isinstance(s, Reduce) for access in accesses(s.value)}
    own = {name for each in adds.values() for name in own_buffers(each)}
    if not all(isinstance(s, Reduce) for s in leaves) or sums & (read | staged) or own:
        raise RefusedError(f"`{loop.var}` does more than add up")


def _values(
    s: Statement, last: For, around: tuple[Around, ...], values: Mapping[str, int]
) -> Iterator[Mapping[str, int]]:
    """The values of the loops from a statement down to `last` for which conditions hold.

    Raises:
        RefusedError: more than loops and conditions stands between, or a condition depends on loops around.
    """
    match s:
        case For() if s is last:
            yield values
        case For(kind="each"):
            for position in s.positions:
                yield from _values(s.body, last, around, {**values, s.var: position})
        case If() if all(isinstance(part, For | Seq) for part in walk(s.otherwise)):
            bounds = [bounds_of(condition.at(values), around) for condition in s.conditions]
            if all(high >= 0 for _, high in bounds):
                if any(low < 0 for low, _ in bounds):
                    raise RefusedError("the iterations of loops around say whether a condition holds")
                yield from _values(s.then, last, around, values)
        case _:
            raise RefusedError(f"more than loops and conditions stands around `{last.var}`")
