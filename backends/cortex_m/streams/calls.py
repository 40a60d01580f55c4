"""A stream as a program: it calls the kernels of its stages on strips of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.calls import kernel
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.names import is_free
from tosaic.backends.cortex_m.program.program import Program, names_in
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.sketches.copies import copied_elements
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, Invoke, Let, Statement
from tosaic.backends.cortex_m.streams.memory import KNOWN, StreamMemory, cached_name
from tosaic.backends.cortex_m.streams.pieces import Found, Turns, alike
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.streams.stage import EDGE
from tosaic.backends.cortex_m.streams.steps import StepPart, StreamSteps
from tosaic.backends.target import Core

WAS = "was_"
"""What the name of a result begins with that is read, as it moves."""


class StreamProgram(NamedTuple):
    """A program, and the steps that copy by vectors, or by words."""

    unscheduled: Program
    steps: tuple[str, ...]


class StreamCalls:
    """Calls of kernels, and copies, in bytes: rows between stages lie in windows, whose places are told."""

    def __init__(self, plan: Plan, memory: StreamMemory, core: Core) -> None:
        self.plan, self.memory, self.run = plan, memory, StreamSteps(plan, memory.windows)
        self._stream, self._core = plan.stream, core
        self._steps, self._loops = list[str](), _names()
        self._buffers = {b.name: b for b in (*self._windows(), *self._working(), *self._cached())}
        self.over = tuple(Overlap(i, o, lead) for (i, o), lead in plan.leads.items())

    def source(self, kind: str, program: StreamProgram) -> KernelSource:
        """A program of these calls as a kernel."""
        built = scheduled(program.unscheduled, parse_steps("\n".join(program.steps)), self._core)
        return built.source(kind, {KNOWN: np.frombuffer(bytes(self.memory.params), np.int8)})

    @property
    def whole(self) -> StreamProgram:
        """From the first row to the last."""
        sites = self.sites
        turns = Turns.of(self.plan.steps, [found for _, found in sites])
        body = seq(*self.begun(), turns.loop(self.done(sites, turns)))
        return self.program(self.arguments, body, self.over)

    @property
    def sites(self) -> list[tuple[StepPart, Found]]:
        """The parts of a step, in order, with what is done there."""
        found = self.run.found
        return [(site, part) for site in sorted(found, key=_order) for part in alike(found[site])]

    def done(self, sites: Sequence[tuple[StepPart, Found]], turns: Turns) -> Statement:
        """What is done in a step."""
        return seq(*(turns.statement(found, partial(self._done, site)) for site, found in sites))

    def program(self, arguments: Iterable[Buffer], body: Statement, over: Sequence[Overlap] = ()) -> StreamProgram:
        """A program of statements that were made since the last one, in which windows live."""
        for name in sorted(names_in(body) & self._buffers.keys()):
            body = Alloc(self._buffers[name], body)
        steps, self._steps = tuple(self._steps), []
        return StreamProgram(Program(tuple(arguments), body, over=tuple(over)), steps)

    @property
    def arguments(self) -> list[Buffer]:
        """Tensors and params."""
        stream, found = self._stream, list[Buffer]()
        for number, name in enumerate(stream.inputs):
            size = max(max(a.step, a.bytes) * a.height * a.planes for _, a in stream.readers(name))
            found.append(Buffer(f"in{number}", "i8", (size,), "in"))
        for number, name in enumerate(stream.outputs):
            stage = stream.writes.index(name)
            rows = self.run.result_rows(stage)
            found.append(Buffer(f"out{number}", "i8", (stream.stages[stage].step * rows,), "out"))
        return [
            *found,
            *([Buffer(KNOWN, "i8", (len(self.memory.params),), "const")] if len(self.memory.params) else []),
        ]

    def _windows(self) -> Iterator[Buffer]:
        """Rows as stages make and read them, and those that a step leaves to the next, which may lie elsewhere."""
        for name, window in self.plan.windows.items():
            number, place = self._stream.writes.index(name), self.memory.windows[name]
            kept = window.size if place.kept_at == place.at else window.kept * window.bytes
            yield Buffer(f"rows{number}", "i8", (window.size,), "scratch", place.at)
            yield Buffer(f"kept{number}", "i8", (kept,), "scratch", place.kept_at)
            yield Buffer(f"edges{number}", "i8", (window.size,), "scratch", place.at)

    def _working(self) -> Iterator[Buffer]:
        """Strips of planes, and the working memory of kernels behind them."""
        for number, at in enumerate(self.memory.working):
            staged = self.memory.staged_bytes(number)
            inner = max((s.scratch_bytes for (n, _), s in self.memory.strips.items() if n == number), default=0)
            yield Buffer(f"planes{number}", "i8", (staged,), "scratch", at)
            yield Buffer(f"own{number}", "i8", (inner,), "scratch", at + staged)

    def _cached(self) -> Iterator[Buffer]:
        for source, (offset, size) in self.memory.kept.items():
            yield Buffer(cached_name(source), "i8", (size,), "scratch", offset)

    def begun(self) -> Iterator[Statement]:
        """Padding above, and params that stay in scratch memory."""
        for name, window in self.plan.windows.items():
            if window.above and window.padding != EDGE:
                number = self._stream.writes.index(name)
                to = f"kept{number}" if window.first else f"rows{number}"
                yield self._filled(Access(to, (Affine(),)), window.padding, window.above * window.bytes)
        for source, (_, size) in self.memory.kept.items():
            yield self._copied(Access(cached_name(source), (Affine(),)), Access(KNOWN, (Affine.of(source),)), size)

    def _done(self, site: StepPart, numbers: Sequence[Affine]) -> Statement:
        """What is done in a part of a step."""
        if site.kind == "make":
            return self._made(site, numbers)
        if site.kind == "take":
            return self._taken(site, numbers)
        (to, source), name = numbers, self._stream.writes[site.window]
        down = 1 if source.terms else source.const
        if name in self._stream.outputs:
            size, target = self._stream.stages[site.window].bytes, Access(self._tensor(name), (to,))
            return self._copied(target, Access(f"{WAS}{target.buffer}", (source,)), site.rows * size, down)
        window, place = self.plan.windows[name], self.memory.windows[name]
        rows, kept = Access(f"rows{site.window}", (source,)), Access(f"kept{site.window}", (to,))
        if site.kind == "keep":
            return self._copied(kept, rows, site.rows * window.bytes, down if place.at == place.kept_at else 0)
        if site.kind == "bring":
            back = Access(rows.buffer, kept.index), Access(kept.buffer, rows.index)
            return self._copied(*back, site.rows * window.bytes)
        if window.padding != EDGE:
            return self._filled(Access(rows.buffer, (to,)), window.padding, site.rows * window.bytes)
        row = next(self._loops)
        target = Access(f"edges{site.window}", (to + Affine.of(row) * window.bytes,))
        return nested(self._copied(target, rows, window.bytes), **{row: site.rows})

    def _made(self, site: StepPart, numbers: Sequence[Affine]) -> Statement:
        """Rows of a result: copied, or by a call of the kernel."""
        *read, written, call = numbers
        number, made = site.window, site.rows
        stage, names = self._stream.stages[number], self._stream.reads[number]
        sources = [Access(self._tensor(name), (at,)) for name, at in zip(names, read, strict=True)]
        target = Access(self._tensor(self._stream.writes[number]), (written,))
        if not stage.module:
            return self._rows(target, stage.step, sources[0], stage.arguments[0].step, made, stage.bytes)
        part, staged, copies = self.memory.strips[number, made], 0, list[Statement]()
        windows = list[Buffer]()
        for index, argument in enumerate(stage.arguments):
            rows = argument.rows.count(made) if argument.rows else argument.height
            windows.append(Buffer(f"a{index}", "i8", (rows * argument.bytes * argument.planes,), "in"))
            if argument.rows and argument.planes > 1:
                size, plane = rows * argument.bytes, argument.height * argument.bytes
                to = Access(f"planes{number}", (Affine.of(staged),))
                copies.append(self._rows(to, size, sources[index], plane, argument.planes, size))
                sources[index] = to
                staged += argument.planes * size
        windows.append(Buffer("made", "i8", (made * stage.bytes,), "out"))
        params, begin, apart = self.memory.params_of((number, made))
        own = {"const": Access(params, (call * apart + begin,)), "scratch": Access(f"own{number}", (Affine(),))}
        size = self.memory.own_params.get((number, made), len(part.params))
        places = [*sources, target]
        found = [at for place in places for at in (*(f for _, f in place.index[0].terms), place.index[0].const)]
        callee = kernel(part.symbol, windows, size, part.scratch_bytes, gcd(VECTOR, *found))
        operands = (*places, *(own[b.memory] for b in callee.arguments if b.memory in own))
        return seq(*copies, Invoke(callee, operands))

    def _taken(self, site: StepPart, numbers: Sequence[Affine]) -> Statement:
        """A row of what is fed, to behind those that its step has taken."""
        stage, (_, written) = self._stream.stages[site.window], numbers
        to = written + Affine.of("taken") * stage.bytes
        source = Access("row", (Affine.of(stage.arguments[0].offset),))
        row = self._copied(Access(f"rows{site.window}", (to,)), source, stage.bytes)
        return Let("taken", Access("number", (Affine.of(2),)), site.rows, row)

    def _tensor(self, name: str) -> str:
        """The buffer of a tensor."""
        stream = self._stream
        if name in stream.inputs:
            return f"in{stream.inputs.index(name)}"
        if name in stream.outputs:
            return f"out{stream.outputs.index(name)}"
        return f"rows{stream.writes.index(name)}"

    def _rows(self, to: Access, to_pitch: int, source: Access, pitch: int, count: int, size: int) -> Statement:
        """Copies of parts of rows, or of rows at once that lie side by side."""
        if to_pitch == pitch == size or count == 1:
            return self._copied(to, source, count * size)
        row = next(self._loops)
        to, source = (_further(a, Affine.of(row) * by) for a, by in ((to, to_pitch), (source, pitch)))
        return nested(self._copied(to, source, size), **{row: count})

    def _copied(self, to: Access, source: Access, size: int, down: int = 0) -> Statement:
        """A loop that copies bytes, moved `down` by so many where both lie in one window."""
        loop = next(self._loops)
        self._steps += copied_elements(source.buffer, loop, size, 1, self._core, down)
        return nested(Assign(_further(to, loop), _further(source, loop)), **{loop: size})

    def _filled(self, to: Access, value: int, size: int) -> Statement:
        loop = next(self._loops)
        return nested(Assign(_further(to, loop), value - 256 if value > 127 else value), **{loop: size})


def _further(place: Access, loop: Affine | str) -> Access:
    return Access(place.buffer, (place.index[0] + loop,))


def _order(site: StepPart) -> tuple[int, ...]:
    """Sites as a step comes by: as many rows as can be together are made first."""
    return site.stage, site.order, -site.rows, site.window


def _names() -> Iterator[str]:
    """Names for loops."""
    number = 0
    while True:
        text, rest = "", number
        while not text or rest:
            rest, letter = divmod(rest, 26)
            text += chr(ord("a") + letter)
        if is_free(f"z{text}"):
            yield f"z{text}"
        number += 1
